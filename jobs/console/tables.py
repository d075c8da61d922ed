"""What the cluster answers, as tables for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.console.progress import label
from tacl.evaluation.interference import HIGH_CHANGE

COLOURS = {
    "ready": "green",
    "failed": "red",
    "cancelled": "yellow",
    "training": "cyan",
    "running": "cyan",
    "queued": "yellow",
}


def console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Left-aligned words, right-aligned numbers, one line a row."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    numbers = set(right)
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    return made


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def state(value: str) -> Text:
    return Text(value, style=COLOURS.get(value, ""))


def steps(one: dict[str, Any]) -> str:
    """`12/300`, or nothing before the first"""
    if not one.get("steps"):
        return ""
    done = one["steps"] if one["state"] == "ready" else one.get("step") or 0
    return f"{done}/{one['steps']}"


def when(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def joined(names: Sequence[str], most: int = 12) -> str:
    more = f", ... ({len(names)})" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def status(found: dict[str, Any]) -> RenderableType:
    lines: list[RenderableType] = [Text(f"base  {found['base'].get('spec', '')}")]
    room = found.get("room") or {}
    if room:
        lines.append(Text(f"room  {resources(room)}"))
    lines.append(Text())
    lines.append(_tasks(found["tasks"]) if found["tasks"] else Text("no task yet: tacl submit"))
    if found["work"]:
        lines += [Text(), _work(found["work"])]
    lines += [Text(note, style="yellow") for note in _notes(found)]
    outdated = [user for user in found.get("users", ()) if user["outdated"]]
    for user in outdated:
        newer = joined(user["outdated"])
        lines.append(Text(f"\nuser {user['user']}: newer versions of {newer}: {user['again']}"))
    removed = [user for user in found.get("users", ()) if user["removed"]]
    for user in removed:
        gone = joined(user["removed"])
        lines.append(Text(f"\nuser {user['user']}: {gone} was removed; compose again without"))
    if found.get("trouble"):
        lines.append(Text(f"\n{found['trouble']}", style="red"))
    return Group(*lines)


def resources(room: dict[str, Any]) -> str:
    """`1 of 2 CPUs free on 1 node`"""
    shown = [f"{room['free_cpus']} of {room['cpus']} CPUs free"]
    if room["gpus"]:
        shown.append(f"{room['free_gpus']} of {room['gpus']} GPUs free")
    count = len(room["nodes"])
    return f"{', '.join(shown)} on {count} node{'s' if count != 1 else ''}"


def _tasks(tasks: list[dict[str, Any]]) -> Table:
    made = table(
        "task",
        "state",
        "steps",
        "loss",
        "version",
        "zero-shot %",
        "trained %",
        "owner",
        right=("steps", "loss", "version", "zero-shot %", "trained %"),
    )
    for one in tasks:
        made.add_row(
            one["name"],
            state(one["state"]),
            steps(one),
            number(one.get("loss")),
            "" if one.get("version") is None else f"v{one['version']}",
            percent(one.get("accuracy_before")),
            percent(one.get("accuracy_after")),
            one["owner"] + (" (private)" if one.get("private") else ""),
        )
    return made


def _notes(found: dict[str, Any]) -> list[str]:
    """Why what waits waits, and why what failed failed."""
    told = [one for one in [*found["tasks"], *found["work"]] if one.get("reason")]
    notes = [f"{label(one)} is {one['state']}: {one['reason']}" for one in told]
    return ["", *notes] if notes else []


def _work(work: list[dict[str, Any]]) -> Table:
    made = table("work", "state", "steps", right=("steps",))
    for one in work:
        made.add_row(label(one), state(one["state"]), steps(one))
    return made


def vectors(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        return Text("no vector yet")
    made = table(
        "vector", "", "norm", "base %", "own %", "from", "made", "met",
        right=("norm", "base %", "own %"),
    )  # fmt: skip
    made.columns[-1].no_wrap = False  # the others stay whole on a narrow screen
    for one in found:
        metrics = one.get("metrics") or {}
        made.add_row(
            f"{one['task']}@v{one['version']}",
            "champion" if one.get("champion") else "",
            number(one.get("norm")),
            percent(metrics.get("validation_zero_shot")),
            percent(metrics.get("validation_accuracy")),
            f"refresh of v{one['parent']}" if one.get("parent") else "training",
            when(one.get("created"))[5:16],
            joined(list(dict.fromkeys(met["task"] for met in one.get("arrivals") or ())), 4),
        )
    return made


def differences(found: dict[str, Any]) -> RenderableType:
    """Two versions side by side, what is equal left out."""
    columns = [f"v{version}" for version in found["versions"]]
    made = table(found["task"], "", *columns, right=columns)
    for group in ("made", "metrics", "config", "tau_jp", "arrivals"):
        for name, pair in found[group].items():
            sides = [when(one) if name == "created" else _said(one) for one in pair]
            made.add_row(group, name, *sides)
    return made


def _said(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def aliases(found: dict[str, Any], name: str = "") -> RenderableType:
    """What each alias means now, and how it came there."""
    now = table("alias", "version")
    for alias, version in found["aliases"].items():
        if name in ("", alias):
            now.add_row(alias, f"v{version}")
    history = table("when", "alias", "from", "to", "why")
    for move in found["history"]:
        if name in ("", move["name"]):
            before = "" if move["came_from"] is None else f"v{move['came_from']}"
            history.add_row(
                when(move["at"]), move["name"], before, f"v{move['version']}", move["cause"]
            )
    return Group(now, Text(), history)


def tokens(found: list[dict[str, Any]]) -> RenderableType:
    made = table("user", "role", "since", "token")
    for one in found:
        made.add_row(one["user"], one["role"], when(one["created"]), f"sha256 {one['token']}...")
    return made if found else Text("nobody has a token; make one: tacl users issue NAME")


def logs(found: list[dict[str, Any]]) -> RenderableType:
    made = table("when", "what", "")
    for one in found:
        made.add_row(when(one["at"]), one["kind"], Text(str(one["text"])))
    return made if found else Text("nothing yet")


def interference(found: dict[str, Any]) -> RenderableType:
    """Relative changes of logits, relative and raw tau_jp: a row per vector, a column per probe."""
    if not found["vectors"]:
        return Text("no vector yet")
    tasks = [vector["task"] for vector in found["vectors"]]
    lines: list[RenderableType] = [
        Text("answers (logits): 1 is what the task's own vector does there", style="italic"),
        _matrix(found, "logits", 2, tasks),
        Text("\ninputs (tau_jp), relative in the same way", style="italic"),
        _matrix(found, "relative", 2, tasks),
        Text("\nraw: mean |J(x) tau| on the probe of each task", style="italic"),
        _matrix(found, "raw", 3, found["on"]),
    ]
    if found.get("missing"):
        lines.append(Text(f"\n{found['missing']} pairs are still to be measured"))
    lines += [Text(f"\nwarning: {one['message']}", style="yellow") for one in found["findings"]]
    lines.append(Text(f"\npicture: {found['picture']}"))
    return Group(*lines)


def _matrix(found: dict[str, Any], kind: str, digits: int, on: list[str]) -> Table:
    """The columns `on` of one matrix; what is not measured is a dash."""
    made = table("vector", *on, right=on)
    for vector, row in zip(found["vectors"], found[kind], strict=True):
        values = dict(zip(found["on"], row, strict=True))
        cells = ["-" if values[name] is None else number(values[name], digits) for name in on]
        made.add_row(f"{vector['task']}@v{vector['version']}", *cells)
    return made


def composition(found: Any) -> RenderableType:
    return model(found.model_dump())


def model(found: dict[str, Any]) -> RenderableType:
    rows = table("coefficient", "vector", "digest", right=("coefficient",))
    for term in found["terms"]:
        vector = term["vector"]
        name = f"{vector['task']}@v{vector['version']}"
        rows.add_row(coefficient(term), name, vector["digest"][:12])
    how = "" if found["method"] == "sum" else f", by {found['method']}"
    return Group(Text(f"{found['user']}'s model {found['digest'][:12]}{how}"), rows)


def coefficient(term: dict[str, Any]) -> str:
    """One, or the range of those of the blocks."""
    if term["by_block"] is None:
        return f"{term['coefficient']:+g}"
    values = [*term["by_block"].values()] or [0.0]
    return f"{min(values):+.3g} to {max(values):+.3g}"


def made(found: dict[str, Any]) -> RenderableType:
    """A composition that was computed, and what that did."""
    report = found["report"]
    columns = ("rows", "zero-shot %", "as a sum %", "now %")
    shares = table("task", *columns, right=columns)
    for task, one in report["accuracies"].items():
        row = (percent(one[name]) for name in ("zero_shot", "before", "after"))
        shares.add_row(task, f"{one['rows']:.0f}", *row)
    lines: list[RenderableType] = [model(found["model"]), Text()]
    if report["accuracies"]:
        lines += [Text(f"accuracies on {report['judged_on']}", style="italic"), shares, Text()]
    high = [one for one in report["tau_jp"] if _disturbs(one)]
    lines += [Text(_disturbance(one), style="yellow") for one in high]
    return Group(*lines, Text(f"made in {report['seconds']:.1f} s"))


def _disturbs(one: dict[str, Any]) -> bool:
    foreign = one["vector"].partition("@")[0] != one["on"]
    return foreign and (one["logits"] or 0) >= HIGH_CHANGE


def _disturbance(one: dict[str, Any]) -> str:
    return (
        f"warning: with these coefficients {one['vector']} changes the answers for {one['on']} by "
        f"{one['logits']:.2f} of what {one['on']}'s own vector does"
    )


def evaluation(found: dict[str, Any]) -> RenderableType:
    columns = ("rows", "zero-shot %", "individual %", "composed %")
    made = table("task", *columns, right=columns)
    for task, one in found["per_task"].items():
        rows = f"{one['rows']:.0f}" if "rows" in one else ""
        accuracies = (percent(one[name]) for name in ("zero_shot", "individual", "composed"))
        made.add_row(task, rows, *accuracies)
    summary = Table(box=None, pad_edge=False, show_header=False)
    summary.add_row("absolute (mean of composed)", percent(found["absolute"]))
    summary.add_row("normalized (mean of composed / individual)", percent(found["normalized"]))
    summary.add_row("class-incremental (task unknown)", percent(found["class_incremental"]))
    return Group(made, Text(), summary)


def answers(inputs: Sequence[str], found: dict[str, Any], most: int) -> RenderableType:
    """Per input and task the likeliest classes."""
    parts: list[RenderableType] = []
    for asked, answer in zip(inputs, found["answers"], strict=True):
        made = table("task", "class", "probability", right=("probability",))
        for task, ranked in answer.items():
            for i, (name, share) in enumerate(ranked[:most]):
                made.add_row(task if i == 0 else "", name, f"{share:.3f}")
        parts += [Text(asked[:90], style="italic"), made, Text()]
    return Group(*parts[:-1])


def pretrained(record: dict[str, Any], out: Path) -> RenderableType:
    made = table("task", "zero-shot %", right=("zero-shot %",))
    for task, accuracy in record["zero_shot"].items():
        made.add_row(task, percent(accuracy))
    written = f"wrote {out} in {record['seconds']:.0f} s, sha256 {record['sha256'][:12]}"
    return Group(made, Text(written))


def check(one: Any) -> Text:
    mark, colour = ("ok  ", "green") if one.ok else ("FAIL", "red")
    advice = "" if one.ok or not one.advice else f"\n{'':15}{one.advice}"
    return Text.assemble((mark, colour), f"  {one.check:<8} {one.found}{advice}")
