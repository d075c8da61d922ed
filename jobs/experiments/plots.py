"""Pictures of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.console.plots import drawing
from jobs.experiments.table import Column, Table


def bars(table: Table, path: Path) -> None:
    """A group of bars for each variant, with a bar for each column that is a share."""
    columns = [column for column in table.columns if column.percent]
    variants, count = table.variants(), len(columns)
    with drawing(path, table.title, height=1.6 + 0.16 * count * len(variants)) as axes:
        for i, column in enumerate(columns):
            places = [place + (i - (count - 1) / 2) * 0.8 / count for place in range(len(variants))]
            means, errors = _percents(table, variants, [column])
            axes.barh(places, means, 0.75 / count, xerr=errors, label=column.heading)
        axes.set_yticks(range(len(variants)), variants)
        axes.invert_yaxis()
        axes.set_xlabel("%")
        axes.grid(axis="x", alpha=0.3)
        axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=count)


def lines(table: Table, path: Path) -> None:
    """A line for each column over the variants in their order."""
    variants = table.variants()
    with _curves(path, table.title, "%") as axes:
        for column in table.columns:
            found = _percents(table, variants, [column])
            axes.errorbar(range(len(variants)), *found, marker="o", label=column.heading)
        axes.set_xticks(range(len(variants)), variants, rotation=30, ha="right", fontsize=8)


def across(table: Table, path: Path) -> None:
    """A line for each variant over the columns."""
    headings = [column.heading for column in table.columns]
    with _curves(path, table.title, "%") as axes:
        for variant in table.variants():
            means, _ = _percents(table, [variant], table.columns)
            axes.plot(headings, means, marker="o", label=variant)


@contextmanager
def _curves(path: Path, title: str, ylabel: str) -> Iterator[Any]:
    with drawing(path, title) as axes:
        yield axes
        axes.set_ylabel(ylabel)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)


def _percents(
    table: Table, variants: Sequence[str], columns: Sequence[Column]
) -> tuple[list[float], list[float]]:
    """Means and deviations over the seeds, of each variant and column; nan if there are none."""
    found = [table.spread(variant, column.key) for variant in variants for column in columns]
    means = [100 * one.mean if one else float("nan") for one in found]
    return means, [100 * (one.deviation or 0.0) if one else 0.0 for one in found]


def arrivals(table: Table, path: Path) -> None:
    """Mean accuracy over the tasks so far, after each arrival; mean over the seeds."""
    with _curves(path, table.title, "mean accuracy on them, %") as axes:
        for variant in table.variants():
            rows = [one.more["R"] for one in table.of(variant)]
            tasks = len(rows[0][-1])
            if len(rows[0]) == 1:  # trained at once
                value = sum(sum(R[-1]) / tasks for R in rows) / len(rows)
                axes.axhline(100 * value, linestyle="--", color="grey", label=variant)
                continue
            so_far = [[sum(row[: i + 1]) / (i + 1) for i, row in enumerate(R)] for R in rows]
            means = [100 * sum(values) / len(rows) for values in zip(*so_far, strict=True)]
            axes.plot(range(1, tasks + 1), means, marker="o", label=variant)
        axes.set_xlabel("tasks so far")


PREDICTORS = {
    "relative": "tau_jp of the other vector on the probe, relative to the own one",
    "logits": "change of the probe's logits, relative to the own one",
    "flipped": "share of the probe whose class it changes",
}


def scatter(table: Table, path: Path) -> None:
    """Loss of a pair against what was measured on probe rows, a colour for each variant."""
    with drawing(path, table.title, width=16.0, height=4.5, across=len(PREDICTORS)) as axes:
        for place, (key, said) in zip(axes[0], PREDICTORS.items(), strict=True):
            for variant in table.variants():
                points = [point for one in table.of(variant) for point in one.more["points"]]
                lost = [100 * point["lost"] for point in points]
                rank = table.spread(variant, f"rank_{key}")
                label = f"{variant}: rank correlation {rank.mean:.2f}" if rank else variant
                place.scatter([p[key] for p in points], lost, s=14, alpha=0.7, label=label)
            place.axhline(0, color="grey", linewidth=0.8)
            place.set_xlabel(said)
            place.set_ylabel("accuracy lost, points")
            place.legend(fontsize=8)


XI: dict[str, Any] = {"origin": "lower", "extent": (-3, 3, -3, 3), "vmin": 0, "vmax": 1}


def maps(table: Table, path: Path) -> None:
    """xi over both coefficients: a row for each variant, a column for each pair."""
    first = [(variant, table.of(variant)[0]) for variant in table.variants()]
    pairs = list(first[0][1].more["maps"])
    size = {"width": 2.7 * len(pairs) + 1, "height": 2.5 * len(first) + 0.6}
    with drawing(path, table.title, **size, across=len(pairs), down=len(first)) as axes:
        axes = axes if len(pairs) > 1 or len(first) > 1 else [[axes]]
        for row, (variant, one) in zip(axes, first, strict=True):
            for place, pair in zip(row, pairs, strict=True):
                image = place.imshow(one.more["maps"][pair], **XI)
                rows, columns = pair.split(", ")
                place.set_title(variant, fontsize=8)
                place.set_xlabel(f"coefficient of {columns}", fontsize=7)
                place.set_ylabel(f"coefficient of {rows}", fontsize=7)
                place.tick_params(labelsize=7)
                place.figure.colorbar(image, ax=place, shrink=0.7)
