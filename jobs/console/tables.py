"""Answers of the cluster as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import JsonValue
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster.domain import reports
from cluster.domain import status as states
from cluster.domain.base import PAGE
from cluster.domain.compositions import Composition, MeasuredAgain, RecipeTerm
from cluster.domain.methods import answering
from cluster.domain.names import listed
from cluster.domain.operations import Answers, candidates
from cluster.domain.users import TokenStatus, Usage
from jobs.console.columns import OneOrMore, in_parts, table, without_empty
from jobs.console.progress import duration, left_of, steps
from tacl.evaluation.interference import HIGH_CHANGE

if TYPE_CHECKING:
    from cluster.runtime.doctor import Check
    from jobs.pretrain import PretrainRecord

MUCH_LOST = 0.01  # of the accuracy of a plain sum, by another method
COLOURS = {
    "ready": "green",
    "failed": "red",
    "cancelled": "yellow",
    "training": "cyan",
    "running": "cyan",
    "queued": "yellow",
}


class Overview(states.ClusterStatus):
    """Status of the cluster, and a page of users' models; `others`: whether more follow."""

    users: tuple[reports.UserModel, ...] = ()
    others: bool = False

    @property
    def is_full(self) -> bool:
        return len(self.users) == PAGE


def console() -> Console:
    """Prints text unchanged: names of classes are users' text."""
    return Console(highlight=False, soft_wrap=False, markup=False, emoji=False)


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def state(value: str) -> Text:
    return Text(value, style=COLOURS.get(value, ""))


def when(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


# -- status and tasks


def status(found: states.ClusterStatus) -> RenderableType:
    users = found.users if isinstance(found, Overview) else ()
    no_task = Text("no tasks yet; submit one: tacl submit NAME --data DATA")
    lines: list[RenderableType] = [
        Text(f"base model  {found.base.spec}"),
        Text(f"resources   {resources(found.room)}\n"),
        _tasks(found.tasks, found.base.untrained) if found.tasks else no_task,
    ]
    if found.work:
        lines += [Text(), _work(found.work)]
    lines += [Text(note, style="yellow") for note in _reasons((*found.tasks, *found.work))]
    lines += [Text(f"\n{_cut(one)}", style="yellow") for one in found.tasks if one.rows_cut]
    if waiting := [one.name for one in found.tasks if one.refresh_waits]:
        why = "a refresh waits until tasks arrive, or for `tacl refresh NAME`"
        lines.append(Text(f"\n{listed(waiting)}: {why}"))
    same = {tuple(sorted((one.name, other))) for one in found.tasks for other in one.near}
    why = "samples of the same kind; interference between them is not measured"
    lines += [Text(f"\n{one} and {other}: {why}") for one, other in sorted(same)]
    lines += [Text(f"\nuser {one.user}: {note}") for one in users for note in _notes(one)]
    if isinstance(found, Overview) and found.others:
        last = found.users[-1].user
        lines.append(Text(f"\nusers up to {last}; models of the next: tacl status --after {last}"))
    if found.trouble:
        lines.append(Text(f"\n{found.trouble}", style="red"))
    return Group(*lines)


def trained(found: states.ClusterStatus) -> RenderableType:
    """The status after trainings. For tasks whose accuracy is not known yet it names the command
    that waits for it: heads are fitted later, when no other work is left."""
    open_ = [one.name for one in found.tasks if one.accuracy_fitted is None and _teaches(one)]
    why = "what a vector adds to the frozen base is known when its head is fitted: tacl wait"
    return Group(status(found), *(Text(f"\n{name}: {why}") for name in open_))


def _teaches(one: states.TaskStatus) -> bool:
    """Whether heads are fitted on its rows: only rows that others may see are used."""
    return one.options.heads == "fitted" and one.options.share == "samples"


def resources(room: states.Resources) -> str:
    """`1 of 2 CPUs free on 1 node`"""
    shown = [f"{room.free_cpus} of {room.cpus} CPUs free"]
    if room.gpus:
        shown.append(f"{room.free_gpus:g} of {room.gpus} GPUs free")
    return f"{', '.join(shown)} on {counted(len(room.nodes), 'node')}"


def idle_gpus(room: states.Resources, asked: float) -> str:
    """A hint for a training that uses no GPU while the cluster has free ones; else empty."""
    if asked or not room.free_gpus:
        return ""
    gpus = "1 GPU" if room.free_gpus == 1 else f"{room.free_gpus:g} GPUs"
    return f"it trains on CPUs; the cluster has {gpus} that no learner uses: --gpus-per-worker 1"


def _tasks(tasks: Sequence[states.TaskStatus], before: str) -> OneOrMore:
    where = ("state", "steps", "left", "loss", "version")
    accuracies = (f"{before} %", "trained %", "fitted %", "frozen base %")
    progress = _columns(tasks, before, (*where, "owner"))
    measured = [one for one in tasks if one.accuracy_before is not None]
    parts = (progress, _columns(measured, before, accuracies)) if measured else (progress,)
    return OneOrMore(_columns(tasks, before, (*where, *accuracies, "owner")), parts)


def _columns(tasks: Sequence[states.TaskStatus], before: str, names: Sequence[str]) -> Table:
    made = table("task", *names, right=set(names) - {"state", "owner"})
    for column in made.columns[1:]:
        column.no_wrap = column.header != "owner"
    for one in tasks:
        cells = {
            "state": state(one.state),
            "steps": steps(one),
            "left": _left(one),
            "loss": number(one.loss),
            "version": "" if one.version is None else f"v{one.version}",
            f"{before} %": percent(one.accuracy_before),
            "trained %": percent(one.accuracy_after),
            "fitted %": percent(one.accuracy_fitted),
            "frozen base %": percent(one.accuracy_frozen),
            "owner": one.owner + (" (private)" if one.private else ""),
        }
        made.add_row(one.name, *(cells[name] for name in names))
    return without_empty(made)


def _left(one: states.Watched) -> str:
    return "" if (seconds := left_of(one)) is None else duration(seconds)


def _work(work: Sequence[states.RunStatus]) -> Table:
    made = table("work", "state", "steps", "left", right=("steps", "left"))
    for one in work:
        made.add_row(one.label, state(one.state), steps(one), _left(one))
    return without_empty(made)


def _cut(one: states.TaskStatus) -> str:
    texts = f"{one.rows_cut} of {one.rows} training texts"
    return f"{one.name}: {texts} are longer than the base model reads; their ends are not used"


def _reasons(runs: Sequence[states.Watched]) -> list[str]:
    """Why runs wait or failed."""
    notes = [f"{one.label} is {one.state}: {one.reason}" for one in runs if one.reason]
    return ["", *notes] if notes else []


def _notes(one: reports.UserModel) -> list[str]:
    """Reasons to compose a user's model again."""
    if one.purged:
        gone = [f"{that.task} was purged on {when(that.at)} ({that.text})" for that in one.purged]
        return [f"{'; '.join(gone)}: the model answers no more. Compose it again: {one.again}"]
    if one.removed:
        gone = f"{listed(one.removed)} was removed; the model works on as it is"
        return [f"{gone}. Compose it without: {one.again}"]
    return [f"newer versions of {listed(one.outdated)}: {one.again}"] if one.outdated else []


def logs(found: Sequence[states.Event]) -> RenderableType:
    made = table("time", "event", "")
    for one in found:
        made.add_row(when(one.at), one.kind, Text(one.text))
    return made if found else Text("no events yet")


# -- vectors


def vectors(found: Sequence[reports.VectorStatus], before: str = "zero-shot") -> RenderableType:
    """`before`: the name of accuracy without a vector, `Base.untrained`."""
    if not found:
        return Text("no vectors yet")
    numbers, origin = ("norm", f"{before} %", "accuracy %"), ("made by", "against")
    made = table("vector", "", *numbers, "created", *origin, right=numbers)
    for column in made.columns[1:-1]:
        column.no_wrap = True
    for one in found:
        made.add_row(
            one.name,
            "champion" if one.champion else "",
            number(one.norm),
            percent(one.metrics.get("validation_zero_shot")),
            percent(one.metrics.get("validation_accuracy")),
            when(one.created)[5:16],
            f"refresh of v{one.parent}" if one.parent else "training",
            _met(one),
        )
    return in_parts(without_empty(made), ("", *numbers, "created"), origin)


def _met(one: reports.VectorStatus) -> str:
    """The first tasks it was made against: `arrivals` names only some if there are many."""
    names = list(dict.fromkeys(met.task for met in one.arrivals))
    if one.met <= len(one.arrivals):
        return listed(names, 4)
    return f"{', '.join(names[:4])}, ... ({one.met} in all)"


def differences(found: reports.VectorComparison) -> RenderableType:
    """Two versions side by side; equal values are left out."""
    columns = [f"v{version}" for version in found.versions]
    made = table(found.task, "", *columns, right=columns)
    for group in ("made", "metrics", "config", "tau_jp", "arrivals"):
        for name, pair in getattr(found, group).items():
            made.add_row(group, name, *(_value(name, one) for one in pair))
    return made


def _value(name: str, value: JsonValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return when(value) if name == "created" else f"{value:.4g}"
    return str(value)


def aliases(found: reports.AliasReport, name: str = "") -> RenderableType:
    """The version of each alias, and its history."""
    now = table("alias", "version")
    for alias, version in found.aliases.items():
        if name in ("", alias):
            now.add_row(alias, f"v{version}")
    history = table("time", "alias", "from", "to", "cause")
    for move in found.history:
        if name in ("", move.name):
            before = "" if move.came_from is None else f"v{move.came_from}"
            history.add_row(when(move.at), move.name, before, f"v{move.version}", move.cause)
    return Group(now, Text(), history)


# -- models


def composition(found: Composition) -> RenderableType:
    rows = table("coefficient", "vector", "digest", right=("coefficient",))
    for term in found.terms:
        vector = term.vector
        rows.add_row(coefficient(term), f"{vector.task}@v{vector.version}", vector.digest[:12])
    how = "" if found.method == "sum" else f", by {found.method}"
    how += f", for the new task {found.target.name}" if found.target else ""
    lines: list[RenderableType] = [Text(f"{found.user}'s model {found.digest[:12]}{how}"), rows]
    for task, owner in found.private_to.items():
        gets = f"{found.user} now gets its answers and the names of its classes"
        lines.append(Text(f"{task} is private to {owner}: {gets}", style="yellow"))
    return Group(*lines)


def coefficient(term: RecipeTerm) -> str:
    """The coefficient, or the range of those of the blocks."""
    if term.by_block is None:
        return f"{term.coefficient:+g}"
    values = [*term.by_block.values()] or [0.0]
    return f"{min(values):+.3g} to {max(values):+.3g}"


def composition_run(found: states.CompositionRun, before: str = "zero-shot") -> RenderableType:
    """A computed composition, its accuracies and its interference."""
    model, report = found.model, found.report
    assert model is not None  # it is ready
    assert report is not None
    columns = ("rows", f"{before} %", "plain sum %", "composed %")
    shares = table("task", *columns, right=columns)
    for task, one in report.accuracies.items():
        row = map(percent, (one.zero_shot, one.before, one.after))
        shares.add_row(task, f"{one.rows:.0f}", *row)
    lines: list[RenderableType] = [composition(model), Text()]
    if report.accuracies:
        lines += [Text(f"accuracies on {report.judged_on}", style="italic"), shares, Text()]
    added = [one for task, one in report.accuracies.items() if task in answering(model)]
    lost = fmean(one.before - one.after for one in added) if added else 0.0
    if lost >= MUCH_LOST:
        said = f"the plain sum is better by {percent(lost)} points on average"
        # Without --method nothing would answer for a task that has no vector.
        todo = "it is made without --method" if model.target is None else "give more --shots"
        lines.append(Text(f"warning: {said}; {todo}", style="yellow"))
    high = [one for one in report.tau_jp if _is_high(one)]
    lines += [Text(_warning(one), style="yellow") for one in high]
    return Group(*lines, Text(f"computed in {report.seconds:.1f} s"))


def _is_high(one: MeasuredAgain) -> bool:
    return one.vector.partition("@")[0] != one.on and (one.logits or 0) >= HIGH_CHANGE


def _warning(one: MeasuredAgain) -> str:
    return (
        f"warning: with these coefficients {one.vector} changes the logits of {one.on} by "
        f"{one.logits:.2f} of what {one.on}'s own vector does"
    )


def answers(inputs: Sequence[str], found: Answers, most: int) -> RenderableType:
    """The likeliest classes per input; if tasks were named, per task."""
    parts: list[RenderableType] = []
    told = found.belonging or [None] * len(found.answers)
    for asked, answer, belonging in zip(inputs, found.answers, told, strict=True):
        made = table("task", "class", "probability", right=("probability",))
        for one in candidates(answer)[:most] if found.best else ():
            made.add_row(one.task, one.label, f"{one.probability:.3f}")
        for task, ranked in answer.items() if not found.best else ():
            for i, (name, share) in enumerate(ranked[:most]):
                made.add_row(task if i == 0 else "", name, f"{share:.3f}")
        parts.append(Text(asked[:90], style="italic"))
        if belonging and belonging.none:
            unlike = "unlike the inputs of every task of this model (1 in 20 of their own is too)"
            parts.append(Text(f"none of these: {unlike}; the nearest are"))
        parts += [made, Text()]
    return Group(*parts[:-1])


# -- users, and this machine


def users(found: Sequence[TokenStatus], usage: Sequence[Usage], after: str = "") -> RenderableType:
    """`after`: the user after whom this page of the list starts."""
    none = f"no tokens after {after}" if after else "no tokens; issue one: tacl users issue NAME"
    tokens = table("user", "role", "token", "created", "ends", "used")
    for one in found:
        days = [when(at)[:10] if at else "never" for at in (one.created, one.expires, one.used)]
        tokens.add_row(one.user, one.role, one.token, *days)
    shares = table("user", "runs queued", "minutes in a day", "GiB stored")
    for one in usage:
        stored = f"{one.stored / 2**30:.1f} of {one.stored_most >> 30}"
        ran = f"{one.ran} of {one.ran_most}"
        shares.add_row(one.user, f"{one.queued} of {one.queued_most}", ran, stored)
    return Group(tokens if found else Text(none), *([shares] if usage else []))


def pretrained(record: PretrainRecord, out: Path) -> RenderableType:
    made = table("task", "zero-shot %", right=("zero-shot %",))
    for task, accuracy in record.zero_shot.items():
        made.add_row(task, percent(accuracy))
    written = f"wrote {out} in {record.seconds:.0f} s, sha256 {record.sha256[:12]}"
    return Group(made, Text(written))


def check(one: Check) -> Text:
    mark, colour = ("ok  ", "green") if one.ok else ("FAIL", "red")
    advice = "" if one.ok or not one.advice else f"\n{'':15}{one.advice}"
    return Text.assemble((mark, colour), f"  {one.check:<8} {one.found}{advice}")
