"""A table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.console.documents import markdown_table
from jobs.experiments.cache import together
from jobs.experiments.table import Column, Entry, OverSeeds, Table, spread

NOTES = (
    "Mean ± standard deviation over the seeds. Training and merging: CPU seconds for all tasks "
    "together, evaluation left out. Peak: memory of the process, or of the GPU."
)

BOOTSTRAPPED = (
    "Points, with 95 % intervals by the paired bootstrap over the test rows of each task, the same "
    "rows of both and of all seeds."
)


def markdown(table: Table) -> str:
    parts = [f"# {table.title}", table.about, _main(table), NOTES, _differences(table)]
    parts += [_by_task(table, column) for column in table.columns if _has(table, column)]
    parts += [_data(table), _settings(table), _commands(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _main(table: Table) -> str:
    heads = ["", *(column.heading for column in table.columns)]
    heads += ["coefficients"] if _has_policy(table) else []
    heads += ["seeds", "saw in training", "saw in merging", "training", "merging", "peak", ""]
    return markdown_table(heads, [_variant(table, variant) for variant in table.variants()], "---:")


def _variant(table: Table, variant: str) -> list[str]:
    entries = table.of(variant)
    cells = [_shown(table.spread(variant, column.key), column) for column in table.columns]
    training = spread([entry.training.cpu_seconds for entry in entries])
    merging = spread([entry.merging.cpu_seconds for entry in entries])
    peak = together([cost for e in entries for cost in (e.training, e.merging)]).peak_mib
    first = entries[0]
    return [
        variant,
        *cells,
        *([first.coefficients] if _has_policy(table) else []),
        ", ".join(str(entry.seed) for entry in entries),
        first.saw_training,
        first.saw_merging,
        _seconds(training),
        _seconds(merging),
        f"{peak:.0f} MiB" if peak else "",
        _facts(entries),
    ]


def _differences(table: Table) -> str:
    if not table.differences:
        return ""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in table.differences:
        shown = f"{100 * one.mean:+.1f} [{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
        row = one.variant, one.against, ", ".join(map(str, one.seeds))
        found.setdefault(row, {})[one.key] = shown
    columns = [column for column in table.columns if any(column.key in of for of in found.values())]
    heads = ["", "against", "seeds", *(column.heading for column in columns)]
    lines = [[*row, *(of.get(c.key, "") for c in columns)] for row, of in found.items()]
    return f"## Differences\n\n{BOOTSTRAPPED}\n\n" + markdown_table(heads, lines, "---:")


def _has_policy(table: Table) -> bool:
    return any(entry.coefficients for entry in table.entries)


def _facts(entries: Sequence[Entry]) -> str:
    """The values that were chosen, or whether a refresh was accepted, seed by seed."""
    names = [k for k, v in entries[0].more.items() if isinstance(v, bool | int | float)]
    return "; ".join(
        f"{name} {', '.join(_short(entry.more.get(name)) for entry in entries)}" for name in names
    )


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _has(table: Table, column: Column) -> bool:
    return any(column.key in numbers for e in table.entries for numbers in e.tasks.values())


def _by_task(table: Table, column: Column) -> str:
    tasks = list(dict.fromkeys(task for entry in table.entries for task in entry.tasks))
    lines = []
    for variant in table.variants():
        entries = table.of(variant)
        found = [spread([e.tasks.get(t, {}).get(column.key) for e in entries]) for t in tasks]
        lines.append([variant, *(_shown(one, column) for one in found)])
    return f"## {column.heading}, by task\n\n" + markdown_table(["", *tasks], lines, "---:")


def _data(table: Table) -> str:
    if not table.data:
        return ""
    keys = list(next(iter(table.data.values())))
    lines = [[name, *(str(sizes[key]) for key in keys)] for name, sizes in table.data.items()]
    return "## Rows\n\n" + markdown_table(["", *keys], lines, "---:")


def _settings(table: Table) -> str:
    suite = table.settings["suite"]
    shown = {name: suite[name] for name in ("steps", "batch", "learning_rate", "strength", "norm")}
    listed = ", ".join(f"{name} {value}" for name, value in shown.items())
    base = table.settings["base"]
    return (
        f"Suite {suite['name']}: {listed}. Base {suite['base']}, digest {base[:12]}. "
        f"Passes that train or refresh vectors are in {suite['precision']} where the model is "
        f"linearized, in float32 where it is ordinary. Everything else is in `{table.name}.json`."
    )


def _commands(table: Table) -> str:
    return "Made by\n\n```\n" + "\n".join(table.commands) + "\n```"


def _shown(found: OverSeeds | None, column: Column) -> str:
    if found is None:
        return ""
    factor, digits = (100, 1) if column.percent else (1, 3)
    mean = f"{factor * found.mean:.{digits}f}"
    return mean if found.deviation is None else f"{mean} ± {factor * found.deviation:.{digits}f}"


def _seconds(found: OverSeeds | None) -> str:
    return f"{found.mean:.0f} s" if found and found.mean else ""
