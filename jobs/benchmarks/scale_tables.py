"""The results of `tacl bench scale`, as tables and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jobs.benchmarks.arriving import ArrivalCost
from jobs.benchmarks.calls import CallCost
from jobs.benchmarks.every import UNMEASURED
from jobs.benchmarks.fleet import ARRIVES, CORE, FURTHEST, GROWTH, RATE, STEP_MS, Fleet
from jobs.benchmarks.population import BEFORE, Size
from jobs.benchmarks.scale import BYTES, CPU_MS, FLAT, LOCK_MS, STARTS, TRAININGS, Scale
from jobs.benchmarks.stream import Upkeep
from jobs.console.documents import markdown_table

HELD_MS = (1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 1000.0)  # bounds of the histogram

HEAD = """# Whether the control plane stays flat

`tacl bench scale{options}` on {machine}.

{sizes}

A real coordinator over SQLite, in one process; Ray adds its round trip. CPU times, which other work
on the machine changes least, of {rounds} calls each (of what changes tasks a tenth, and of the
first lease of a training, which tells a page of tasks; `lease`: of one that has heard of all):
median / 99th percentile, and bytes of the answer as JSON at the 99th percentile.
Goals: at most {CPU_MS:g} ms and {BYTES:,} bytes, the median of the larger home at most {FLAT:g}
times that of the smaller. Vectors are measured on as many tasks, and refreshed against as many, as
the plan has them. A server's process reads the registry itself. Not measured: {unmeasured}.

![CPU times, lock and arrivals](scale.png)

"""


def markdown(found: Scale, options: str = "") -> str:
    """The file in `results`."""
    homes = found.homes
    sizes = "\n".join(f"- {name}: {_described(one.size)}" for name, one in homes.items())
    about = {"machine": found.machine, "rounds": found.rounds, "sizes": sizes, "options": options}
    left_out = "; ".join(f"`{name}` ({why})" for name, why in UNMEASURED.items())
    head = HEAD.format(**about, CPU_MS=CPU_MS, BYTES=BYTES, FLAT=FLAT, unmeasured=left_out)
    columns = ["who", "call", *(f"{name} tasks" for name in homes), "larger / smaller"]
    goals = [one for one in found.goals() if one.missed]
    missed = [f"- {one.what}: {one.measured:,.4g}; goal {one.goal:,g}" for one in goals]
    calls = [_call(costs) for costs in found.by_call()]
    parts = [head + markdown_table(columns, calls, "---:"), "", "## A start, and the lock", ""]
    parts += _starts(found)
    by = [f"{name}, {how}" for name in homes for how in ("CPU", "clock")]
    parts += ["", markdown_table(["held for, ms", *by], histogram(found), "---:"), ""]
    parts += _fits(found) if all(one.fits for one in homes.values()) else []
    parts += _upkeep(found) if found.upkeep else []
    parts += _fleets(found.fleets) if found.fleets else []
    parts += ["## Missed", "", *(missed or ["Nothing."]), ""]
    return "\n".join(parts)


def _starts(found: Scale) -> Iterator[str]:
    for name, one in found.homes.items():
        yield f"- {STARTS} starts at {name} tasks: {_seconds(one.start)}"
        yield f"- a server's process opens the registry at {name} tasks: {_seconds(one.opened)}"
        yield f"- memory of the coordinator at {name} tasks: {one.memory / 2**20:.0f} MiB"
        cpu, clock = one.longest
        held = f"{cpu.cpu:.1f} CPU ms, in `{cpu.method}`; by the clock, with what it waits for, "
        held += f"{clock.clock:.1f} ms, in `{clock.method}`"
        yield f"- the longest time under the lock at {name} tasks: {held}"


def _seconds(call: CallCost) -> str:
    by_clock = f"by the clock {call.clock.median / 1000:.2f} s"
    return f"{call.cpu.median / 1000:.2f} CPU s, at most {call.cpu.p99 / 1000:.2f}; {by_clock}"


FITS = """## Heads that are fitted again

Of {each} earlier fits, and of one for each of {private} owners of private tasks beside the newest
for everybody; the longest time under the lock at once / the processor's time in all, ms.
"""


def _fits(found: Scale) -> list[str]:
    homes = list(found.homes.values())
    rows = (
        [some[0].what, *(f"{one.held_ms:.1f} / {one.cpu_ms:,.1f}" for one in some)]
        for some in zip(*(one.fits for one in homes), strict=True)
    )
    columns = ["what", *(f"{one.size.tasks:,} tasks" for one in homes)]
    about = FITS.format(each=len(BEFORE), private=homes[-1].size.private)
    return [about, markdown_table(columns, rows, "---:"), ""]


UPKEEP = f"""## What an arrival causes

By the real plan, whose work is made up (`jobs/benchmarks/stream.py`): on average of the last
arrivals of so many, pairs of vector and task that are measured, refreshes, what both cost in
trainings of the newcomer (goal: at most {TRAININGS:g}), and the processor time of the plan, in all
and of the longest event (goal: {LOCK_MS:g} ms, it holds the lock). Beside it, where a home has so
many tasks, what the registry takes to keep the vector with its row and its column of the matrix.
"""


def _upkeep(found: Scale) -> list[str]:
    columns = ["tasks", "pairs measured", "refreshes", "trainings", "CPU ms of the plan", "longest"]
    columns += ["of the registry", "bytes written"]
    rows = ([*_caused(one), *_kept(found.arrivals.get(one.tasks))] for one in found.upkeep)
    return [UPKEEP, markdown_table(columns, rows, "---:"), ""]


def _caused(one: Upkeep) -> Iterator[str]:
    yield f"{one.tasks:,}"
    yield from (f"{one.pairs:.1f}", f"{one.refreshes:.1f}", f"{one.trainings:.2f}")
    yield from (f"{one.cpu_ms:.1f}", f"{one.longest_ms:.1f}")


def _kept(one: ArrivalCost | None) -> tuple[str, str]:
    return (f"{one.cpu_ms:.1f}", f"{one.written:,}") if one else ("", "")


FLEETS = f"""## Learners that ask

Each does {RATE} optimizer steps a second and asks the one coordinator, an actor, through Ray for
its next lease of them, of as many seconds as the coordinator says to so many; counted from when
what it says has settled. Every {ARRIVES:g} seconds a task arrives, whose samples all are told of.
Goals: at most {CORE:g} of a core, and at the 99th percentile no wait longer than a step,
{STEP_MS:g} ms. The share is what as many learners need that are all answered in time, of the
processor time of an answer, with everything that the coordinator's process does beside. Where as
many as were asked for are within both, fleets {GROWTH:g} times as large as the one before follow
until one is not, of at most {FURTHEST} times as many.
"""


def _fleets(fleets: Sequence[Fleet]) -> list[str]:
    columns = ["learners", "lease", "answers", "per second", "CPU ms of an answer"]
    columns += ["of one core", "waited"]
    rows = (
        [
            f"{one.learners:,}",
            f"{one.lease:.1f} s",
            f"{one.answers:,}",
            f"{one.answers / one.seconds:.0f}",
            f"{1000 * one.cpu / one.answers:.2f}",
            f"{one.core:.2f}",
            f"{one.wait_p50:.1f} / {one.wait_p99:.0f} ms",
        ]
        for one in fleets
    )
    return [FLEETS, markdown_table(columns, rows, "---:"), "", largest(fleets), ""]


def largest(fleets: Sequence[Fleet]) -> str:
    """The largest fleet within both goals, among those that were tried."""
    carried = max((one.learners for one in fleets if one.is_carried), default=0)
    missed = [one.learners for one in fleets if not one.is_carried]
    if not carried:
        return "None of them is within both goals."
    said = f"The largest within both goals: {carried:,} learners; "
    if larger := [learners for learners in missed if learners > carried]:
        return said + f"{min(larger):,} miss one."
    return said + "more were not tried."


def _described(size: Size) -> str:
    told = "" if size.told is None else f", trainings before were told of {size.told:,} tasks each"
    return (
        f"{size.tasks:,} tasks, {size.versions} versions of each, "
        f"{size.compositions:,} users with a model{told}"
    )


def _call(costs: Sequence[CallCost]) -> list[str]:
    cells = [f"{c.cpu.median:,.2f} / {c.cpu.p99:,.2f}, {c.bytes.p99:,.0f} B" for c in costs]
    first, last = costs[0], costs[-1]
    ratio = f"{last.cpu.median / first.cpu.median:.2f}" if len(costs) > 1 else ""
    return [first.who, first.what, *cells, ratio]


def histogram(found: Scale) -> Iterator[list[str]]:
    """How often the lock was held for how long: by home, in CPU time and by wall clock."""
    times = list[list[float]]()
    for one in found.homes.values():
        times += [[hold.cpu for hold in one.held], [hold.clock for hold in one.held]]
    for low, high in pairwise([0.0, *HELD_MS, float("inf")]):
        said = f"{low:g} to {high:g}" if high < float("inf") else f"over {low:g}"
        yield [said, *(f"{sum(low <= t < high for t in some):,}" for some in times)]


def picture(found: Scale, path: Path) -> None:
    """The calls by their CPU time, the times under the lock, and the cost of an arrival."""
    from jobs.console.plots import drawing

    calls = max((len(one.calls) for one in found.homes.values()), default=0)
    with drawing(path, "", 18, max(7.0, 0.22 * calls), across=3) as axes:
        _draw_calls(found, axes[0][0])
        _draw_lock(found, axes[0][1])
        _draw_arrivals(found, axes[0][2])


def _draw_calls(found: Scale, axes: Any) -> None:
    for place, (size, one) in enumerate(found.homes.items()):
        rows = np.arange(len(one.calls)) + 0.4 * place
        axes.barh(rows, [call.cpu.p99 for call in one.calls], 0.4, label=f"{size} tasks")
        axes.set_yticks(np.arange(len(one.calls)), [call.name for call in one.calls])
    axes.axvline(CPU_MS, color="black", linestyle=":")
    axes.set(xscale="log", xlabel="CPU ms, 99th percentile")
    axes.invert_yaxis()
    axes.legend()


def _draw_lock(found: Scale, axes: Any) -> None:
    for size, one in found.homes.items():
        longer = 1 - np.arange(len(one.held)) / len(one.held)
        cpu, clock = (np.sort([hold[how] for hold in one.held]) for how in (0, 1))
        (line,) = axes.plot(cpu, longer, label=f"{size} tasks, CPU")
        axes.plot(clock, longer, "--", color=line.get_color(), label=f"{size} tasks, clock")
    axes.axvline(LOCK_MS, color="black", linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="ms under the lock", ylabel="share longer")
    axes.legend()


def _draw_arrivals(found: Scale, axes: Any) -> None:
    for what, cost in arrival_costs(found).items():
        axes.plot([*cost], [*cost.values()], marker="o", label=what)
    axes.set(xscale="log", yscale="log", xlabel="tasks", ylabel="an arrival costs")
    axes.legend()


def arrival_costs(found: Scale) -> dict[str, dict[int, float]]:
    """By kind of cost: the cost of an arrival, by the number of tasks."""
    kept, upkeep = dict(sorted(found.arrivals.items())), {one.tasks: one for one in found.upkeep}
    both = [tasks for tasks in kept if tasks in upkeep]
    return {
        "upkeep, trainings": {tasks: one.trainings for tasks, one in upkeep.items()},
        "coordinator, CPU ms": {n: kept[n].cpu_ms + upkeep[n].cpu_ms for n in both},
        "written, kB": {tasks: one.written / 1000 for tasks, one in kept.items()},
    }
