"""All benches in one run, and the table that says what was aimed at and what was reached."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jobs.benchmarks.timing import Say

Figures = dict[str, Any]
VIT, LITE = "open_clip:ViT-B-32", "timm:tf_efficientnet_lite0?size=96"


@dataclass(frozen=True)
class Bench:
    """One of the runs: its command, and how it is made from here."""

    name: str
    command: str
    run: Callable[[str, Say], Figures]


def _step(model: str, dtype: str, batch: int, rounds: int) -> Callable[[str, Say], Figures]:
    def run(device: str, say: Say) -> Figures:
        from jobs.benchmarks.step import bench_step

        return bench_step(model, dtype, batch, rounds, device, say)

    return run


def _compose(device: str, say: Say) -> Figures:
    from jobs.benchmarks.compose import COUNTS, bench_compose

    return bench_compose(VIT, COUNTS, 16, 3, device, say)


def _evaluate(device: str, say: Say) -> Figures:
    from jobs.benchmarks.evaluate import bench_evaluate

    return bench_evaluate("embedded", 64, 5, device, say)


def _refresh(model: str) -> Callable[[str, Say], Figures]:
    def run(device: str, say: Say) -> Figures:
        from jobs.benchmarks.refresh import bench_refresh

        return bench_refresh(model, 3, device, say)

    return run


def _submit(device: str, say: Say) -> Figures:
    from jobs.benchmarks.submit import bench_submit

    return bench_submit(3, say)


BENCHES = (
    Bench("vit", f"step --model {VIT} --rounds 3", _step(VIT, "float32", 16, 3)),
    Bench(
        "vit_bf16",
        f"step --model {VIT} --dtype bfloat16 --rounds 3",
        _step(VIT, "bfloat16", 16, 3),
    ),
    Bench("minilm", "step --model hf:minilm --batch 32", _step("hf:minilm", "float32", 32, 5)),
    Bench("lite0", f"step --model '{LITE}' --batch 32 --rounds 3", _step(LITE, "float32", 32, 3)),
    Bench("compose", "compose --rounds 3", _compose),
    Bench("evaluate", "evaluate", _evaluate),
    Bench("refresh", "refresh", _refresh("hf:minilm")),
    Bench("refresh_lite0", f"refresh --model '{LITE}'", _refresh(LITE)),
    Bench("submit", "submit", _submit),
)


@dataclass(frozen=True)
class Goal:
    """A row of the table: a figure of a bench, and the bound that it should keep."""

    what: str
    arithmetic: str
    bench: str
    figure: Callable[[Figures], float]
    bound: float
    at_least: bool = False

    def reached(self, value: float) -> bool:
        """To the third decimal, as goals are given."""
        value = round(value, 3)
        return value >= self.bound if self.at_least else value <= self.bound


def _to_ordinary(name: str) -> Callable[[Figures], float]:
    return lambda found: found["ratio_to_ordinary"][name]


def _kept(found: Figures) -> float:
    return found["activation_bytes"]["ours_none"] / found["activation_bytes"]["ordinary"]


def _penalty_kept(found: Figures) -> float:
    return found["activation_bytes"]["ours_cyclical"] / found["activation_bytes"]["ours_none"] - 1


def _of_sum(count: str) -> Callable[[Figures], float]:
    return lambda found: found["sum"][count]["ratio_to_copy"]


def _two_jvp(found: Figures) -> float:
    return found["speedup_over_two_jvp"]


def _atlas_step(found: Figures) -> float:
    return found["atlas"]["ratio_to_ideal"]


def _atlas_bytes(found: Figures) -> float:
    return found["atlas"]["peak_bytes"] / found["theta_bytes"]


def _to_training(found: Figures) -> float:
    return found["ratio_to_training"]


CYCLICAL, STRICT = _to_ordinary("ours_cyclical"), _to_ordinary("ours_strict")
BEYOND = "submit to ready, beyond training and bare imports, seconds"
GOALS = (
    Goal("cyclical step / ordinary, ViT-B/32, 16 + 2", "1.875", "vit", CYCLICAL, 1.95),
    Goal("the same in bfloat16", "1.875", "vit_bf16", CYCLICAL, 1.95),
    Goal("two jvp calls / cyclical, float32", "", "vit", _two_jvp, 1.9, at_least=True),
    Goal("two jvp calls / cyclical, bfloat16", "", "vit_bf16", _two_jvp, 5.0, at_least=True),
    Goal("strict with 7 others / ordinary", "3.125", "vit", STRICT, 3.3),
    Goal("cyclical / ordinary, MiniLM 32 + 4, length 32", "1.875", "minilm", CYCLICAL, 2.0),
    Goal("cyclical / ordinary, EfficientNet-Lite0 96 px, 32 + 4", "1.875", "lite0", CYCLICAL, 2.2),
    Goal("activation bytes, linear / ordinary, ViT-B/32", "", "vit", _kept, 1.35),
    Goal("the same, MiniLM", "", "minilm", _kept, 1.35),
    Goal("the same, EfficientNet-Lite0", "", "lite0", _kept, 1.35),
    Goal("penalty's extra activation bytes, ViT-B/32", "0.125", "vit", _penalty_kept, 0.125),
    Goal("sum of 2 vectors / copying them", "", "compose", _of_sum("2"), 0.8),
    Goal("sum of 8 vectors / copying them", "", "compose", _of_sum("8"), 0.8),
    Goal("sum of 22 vectors / copying them", "", "compose", _of_sum("22"), 0.8),
    Goal("aTLAS step, T = 8 / (ordinary + two passes)", "1", "compose", _atlas_step, 1.15),
    Goal("aTLAS: bytes beside the vectors / theta", "", "compose", _atlas_bytes, 1.0),
    Goal("all pairs: dual passes / cached", "", "evaluate", lambda f: f["speedup"], 20.0, True),
    Goal("refresh / training of 200 steps, MiniLM", "0.142", "refresh", _to_training, 0.2),
    Goal("the same, EfficientNet-Lite0 96 px", "0.142", "refresh_lite0", _to_training, 0.2),
    Goal(BEYOND, "", "submit", lambda f: f["overhead_s"], 3.0),
)


def bench_all(device: str, say: Callable[[str], None]) -> dict[str, Figures]:
    """Every bench, one after another; a bench that cannot run here says why and is left out."""
    from tacl.errors import TaclError

    found: dict[str, Figures] = {}
    for bench in BENCHES:
        say(f"tacl bench {bench.command}")
        start = time.perf_counter()
        try:
            found[bench.name] = bench.run(device, lambda done, total: None)
        except TaclError as error:
            found[bench.name] = {"left_out": str(error)}
        found[bench.name]["bench_s"] = time.perf_counter() - start
    return found


def markdown(found: dict[str, Figures]) -> str:
    return "\n".join([*_head(found), "", *_goals(found), "", *_commands(found), ""])


def _head(found: dict[str, Figures]) -> list[str]:
    threads = next((f["threads"] for f in found.values() if "threads" in f), "?")
    return [
        "# Performance",
        "",
        "Made by `tacl bench all --out results/performance.md`. Every figure is a ratio within one",
        "run: the contestants take turns, and of the ratios of the rounds the median is taken.",
        "",
        f"Machine: {_processor()}, {os.cpu_count()} cores, {threads} threads, torch "
        f"{version('torch')}, Python {platform.python_version()}.",
    ]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _goals(found: dict[str, Figures]) -> list[str]:
    lines = ["| what | arithmetic | goal | measured | |", "|---|---|---|---|---|"]
    for goal in GOALS:
        figures = found.get(goal.bench, {"left_out": "not run"})
        bound = f"{'≥' if goal.at_least else '≤'} {goal.bound:g}"
        if "left_out" in figures:
            measured, verdict = "-", figures["left_out"]
        else:
            value = goal.figure(figures)
            measured, verdict = f"{value:.4g}", "" if goal.reached(value) else "**missed**"
        lines.append(f"| {goal.what} | {goal.arithmetic} | {bound} | {measured} | {verdict} |")
    return lines


def _commands(found: dict[str, Figures]) -> list[str]:
    lines = ["The figures behind the table, seconds unless said:", ""]
    for bench in BENCHES:
        if bench.name in found:
            lines += [f"`tacl bench {bench.command}`", "", *_listed(found[bench.name]), ""]
    return lines


def _listed(figures: Figures, before: str = "") -> list[str]:
    lines: list[str] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{key} {_said(one)}" for key, one in value.items())
            lines.append(f"- {before}{name}: {inner}")
        else:
            lines.append(f"- {before}{name}: {_said(value)}")
    return lines


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_said(one)}" for key, one in value.items()) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
