"""What each task of a home cost when it arrived, read from the registry: `tacl bench arrivals`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from cluster.domain.status import RunKind, RunState
from cluster.registry import Registry, RunRecord
from cluster.storage.home import Home
from jobs.console.documents import markdown_table
from tacl.errors import BadConfig

KINDS: dict[RunKind, str] = {
    "measure": "measuring",
    "refresh": "refreshing",
    "fit": "fitting heads",
}
LAST = 4  # arrivals averaged in a line of the summary


@dataclass
class ArrivalTimes:
    """Seconds that runs took from start to end, by kind. An arrival caused the runs that were
    accepted after the vector of its task existed, and before the next task's did."""

    task: str
    training: float
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def upkeep(self) -> float:
        """Seconds of work on vectors, which the budget of arrivals is for."""
        return self.seconds["measure"] + self.seconds["refresh"]

    @property
    def all(self) -> float:
        """Seconds including the fits of heads, which do not count for the budget."""
        return self.upkeep + self.seconds["fit"]


def arrivals(runs: Sequence[RunRecord]) -> list[ArrivalTimes]:
    """The arrivals, from finished runs, in the order in which the vectors were made."""
    trainings = sorted((r for r in runs if r.kind == "train"), key=lambda run: run.ended or 0.0)
    found = [ArrivalTimes(run.task or "", _seconds(run)) for run in trainings]
    came = [run.ended or 0.0 for run in trainings]
    for run in runs:
        if run.kind in KINDS and (place := bisect_right(came, run.created)):
            caused = found[place - 1]
            caused.seconds[run.kind] += _seconds(run)
            caused.runs[run.kind] += 1
    return found


def _seconds(run: RunRecord) -> float:
    return (run.ended or 0.0) - (run.started or 0.0)


def bench_arrivals(home: Home) -> list[ArrivalTimes]:
    """The arrivals of a home. Raises BadConfig if no task has a vector yet."""
    home.founded()
    with closing(Registry(home.registry_url)) as registry:
        found = arrivals(registry.runs((RunState.DONE,), kinds=("train", *KINDS)))
    if not found:
        raise BadConfig(f"no task of {home.path} has a vector yet: wait for one (`tacl wait`)")
    return found


def markdown(found: Sequence[ArrivalTimes], picture: str | None) -> str:
    """`picture`: name of its file, beside that of the table."""
    heads = ("arrival", "task", "training", *KINDS.values(), "runs")
    heads += ("upkeep / training", "all / training")
    rows = [
        (
            f"{number}",
            one.task,
            f"{one.training:.0f} s",
            *(f"{one.seconds[kind]:.0f} s" for kind in KINDS),
            " + ".join(str(one.runs[kind]) for kind in KINDS),
            f"{one.upkeep / one.training:.2f}",
            f"{one.all / one.training:.2f}",
        )
        for number, one in enumerate(found, start=1)
    ]
    about = (
        "Seconds of the runs that each arrival caused, after its training: pairs measured, vectors "
        "refreshed, heads fitted together. *Upkeep / training* is of measuring and refreshing; "
        "heads are fitted beside that budget, and *all / training* is with them. Of all "
        f"{len(found)}: {_shares(found)}; of the last {LAST} at some sizes: {_sizes(found)}."
    )
    drawn = [f"![Seconds of each arrival]({picture})"] if picture else []
    return "\n\n".join([about, *drawn, markdown_table(heads, rows, "---:")]) + "\n"


def _shares(found: Sequence[ArrivalTimes]) -> str:
    """Upkeep, and all work after the training, as shares of the training."""
    training = sum(one.training for one in found)
    upkeep, everything = sum(one.upkeep for one in found), sum(one.all for one in found)
    return f"{upkeep / training:.2f}, all {everything / training:.2f}"


def _sizes(found: Sequence[ArrivalTimes]) -> str:
    sizes = [size for size in (4, 8, 14, 25, 40) if size <= len(found)]
    shares = (f"{_shares(found[size - LAST : size])} at {size}" for size in sizes)
    return "; ".join(shares) or "too few"


def picture(found: Sequence[ArrivalTimes], path: Path) -> None:
    """Seconds over arrivals, the kinds stacked, and the training."""
    from jobs.console.plots import drawing

    numbers = range(1, len(found) + 1)
    title = f"{len(found)} arrivals; a training takes {mean(o.training for o in found):.0f} s"
    with drawing(path, title) as axes:
        seconds = [[one.seconds[kind] for one in found] for kind in KINDS]
        axes.stackplot(numbers, *seconds, labels=KINDS.values())
        axes.plot(numbers, [one.training for one in found], color="black", label="training")
        axes.set(xlabel="arrival", ylabel="seconds")
        axes.legend()
