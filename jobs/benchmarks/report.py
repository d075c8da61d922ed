"""All benches in one run, and the table of goals and results."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from importlib.metadata import version
from operator import getitem
from typing import Any

from jobs.benchmarks.compose import COUNTS, bench_compose
from jobs.benchmarks.evaluate import bench_evaluate
from jobs.benchmarks.learners import bench_learners
from jobs.benchmarks.query import ROWS, bench_query
from jobs.benchmarks.refresh import bench_refresh
from jobs.benchmarks.step import bench_step
from jobs.benchmarks.submit import bench_submit
from jobs.benchmarks.timing import Say, processor
from jobs.console.documents import markdown_table
from tacl.errors import TaclError

Figures = dict[str, Any]  # as in --json
VIT, LITE = "open_clip:ViT-B-32", "timm:tf_efficientnet_lite0?size=96"
HALF = "bfloat16"
QUEUED, STEPS = 8, 100  # trainings in the queue, and steps of each
CLUSTERS = ("submit", "learners")  # these have a cluster of their own, whose learners have no GPU


@dataclass(frozen=True)
class Benchmark:
    """One of the benches: its command, and a function that runs it."""

    command: str
    run: Callable[[str, Say], Figures]


BENCHES = {
    "vit": Benchmark(f"step --model {VIT} --rounds 3", partial(bench_step, VIT, "float32", 16, 3)),
    "vit_bf16": Benchmark(
        f"step --model {VIT} --dtype {HALF} --rounds 3", partial(bench_step, VIT, HALF, 16, 3)
    ),
    "minilm": Benchmark(
        "step --model hf:minilm --batch 32", partial(bench_step, "hf:minilm", "float32", 32, 5)
    ),
    "lite0": Benchmark(
        f"step --model '{LITE}' --batch 32 --rounds 3", partial(bench_step, LITE, "float32", 32, 3)
    ),
    "compose": Benchmark("compose --rounds 3", partial(bench_compose, VIT, COUNTS, 16, 3)),
    "evaluate": Benchmark("evaluate", partial(bench_evaluate, "embedded", 64, 5)),
    "refresh": Benchmark("refresh", partial(bench_refresh, "hf:minilm", 3)),
    "refresh_lite0": Benchmark(f"refresh --model '{LITE}'", partial(bench_refresh, LITE, 3)),
    "query": Benchmark("query", lambda device, say: bench_query(11, say)),
    "submit": Benchmark("submit", lambda device, say: bench_submit(3, say)),
    "learners": Benchmark(
        f"learners --runs {QUEUED} --steps {STEPS} --rounds 2",
        lambda device, say: bench_learners(QUEUED, STEPS, 2, say),
    ),
}


@dataclass(frozen=True)
class Goal:
    """A row of the table: a figure of a bench, and the bound that it should keep."""

    what: str
    arithmetic: str
    bench: str
    figure: Callable[[Figures], float]
    bound: float
    at_least: bool = False

    def row(self, figures: Figures) -> tuple[str, ...]:
        if "left_out" in figures:
            measured, verdict = "-", figures["left_out"]
        else:
            value = self.figure(figures)
            rounded = round(value, 3)  # goals are given with 3 digits
            reached = rounded >= self.bound if self.at_least else rounded <= self.bound
            measured, verdict = f"{value:.4g}", "" if reached else "**missed**"
        bound = f"{'≥' if self.at_least else '≤'} {self.bound:g}"
        return self.what, self.arithmetic, bound, measured, verdict


def of(*names: str) -> Callable[[Figures], Any]:
    """The figure at the end of this path of names."""
    return lambda found: reduce(getitem, names, found)


def _linear(found: Figures) -> float:
    return found["activation_bytes"]["ours_none"] / found["activation_bytes"]["ordinary"]


def _penalty(found: Figures) -> float:
    return found["activation_bytes"]["ours_cyclical"] / found["activation_bytes"]["ours_none"] - 1


def _atlas_bytes(found: Figures) -> float:
    return found["atlas"]["peak_bytes"] / found["theta_bytes"]


CYCLICAL = of("ratio_to_ordinary", "ours_cyclical")
STRICT = of("ratio_to_ordinary", "ours_strict")
TWO_JVP, TO_TRAINING = of("speedup_over_two_jvp"), of("ratio_to_training")
TO_COPY = {count: of("sum", str(count), "ratio_to_copy") for count in COUNTS}
ATLAS = of("atlas", "ratio_to_ideal")
ONE, SOME = of("ratio_1"), of(f"ratio_{ROWS}")
BEYOND = "submit to ready, beyond training and bare imports, seconds"
REUSED = (
    f"{QUEUED} queued trainings of {STEPS} steps: a process for each / reused ones that share θ0"
)
GOALS = (
    Goal("cyclical step / ordinary, ViT-B/32, 16 + 2", "1.875", "vit", CYCLICAL, 1.95),
    Goal("the same in bfloat16", "1.875", "vit_bf16", CYCLICAL, 1.95),
    Goal("two jvp calls / cyclical, float32", "", "vit", TWO_JVP, 1.9, at_least=True),
    Goal("two jvp calls / cyclical, bfloat16", "", "vit_bf16", TWO_JVP, 5.0, at_least=True),
    Goal("strict with 7 others / ordinary", "3.125", "vit", STRICT, 3.3),
    Goal("cyclical / ordinary, MiniLM 32 + 4, length 32", "1.875", "minilm", CYCLICAL, 2.0),
    Goal("cyclical / ordinary, EfficientNet-Lite0 96 px, 32 + 4", "1.875", "lite0", CYCLICAL, 2.2),
    Goal("activation bytes, linear / ordinary, ViT-B/32", "", "vit", _linear, 1.35),
    Goal("the same, MiniLM", "", "minilm", _linear, 1.35),
    Goal("the same, EfficientNet-Lite0", "", "lite0", _linear, 1.35),
    Goal("penalty's extra activation bytes, ViT-B/32", "0.125", "vit", _penalty, 0.125),
    *(Goal(f"sum of {n} vectors / copying them", "", "compose", TO_COPY[n], 0.8) for n in COUNTS),
    Goal("aTLAS step, T = 8 / (ordinary + two passes)", "1", "compose", ATLAS, 1.15),
    Goal("aTLAS: bytes beside the vectors / theta", "", "compose", _atlas_bytes, 1.0),
    Goal("all pairs: dual passes / cached", "", "evaluate", of("speedup"), 20.0, True),
    Goal("refresh / training of 200 steps, MiniLM", "0.079", "refresh", TO_TRAINING, 0.2),
    Goal("the same, EfficientNet-Lite0 96 px", "0.079", "refresh_lite0", TO_TRAINING, 0.2),
    Goal("query of 1 input, fitted heads / those of the training", "", "query", ONE, 1.05),
    Goal(f"the same, {ROWS} inputs", "", "query", SOME, 1.05),
    Goal(BEYOND, "", "submit", of("overhead_s"), 3.0),
    Goal(REUSED, "", "learners", of("sooner"), 1.5, at_least=True),
)


def bench_all(
    device: str, say: Callable[[str], None], without: Collection[str] = ()
) -> dict[str, Figures]:
    """Run every bench, one after another; one that cannot run here is left out, with the reason."""
    found: dict[str, Figures] = {}
    for name, bench in BENCHES.items():
        if name in without:
            continue
        say(f"tacl bench {bench.command}")
        start = time.perf_counter()
        try:
            found[name] = bench.run(device, lambda done, total: None)
        except (TaclError, RuntimeError) as error:  # for example, a GPU's memory is full
            said = " ".join(str(error).split())
            found[name] = {"left_out": said or type(error).__name__}
        found[name]["bench_s"] = time.perf_counter() - start
    return found


def markdown(found: dict[str, Figures], gpu: str = "") -> str:
    """`gpu`: its name, if the passes ran on one."""
    threads = next((f["threads"] for f in found.values() if "threads" in f), "?")
    missing = {"left_out": "not run"}
    made = "gpu --out results/gpu.md" if gpu else "all --out results/performance.md"
    lines = [
        "# Performance on a GPU" if gpu else "# Performance",
        "",
        f"Made by `tacl bench {made}`. Every figure is a ratio within one",
        "run: the contestants take turns, and of the ratios of the rounds the median is taken.",
        "",
        f"Machine: {gpu + ', ' if gpu else ''}{processor()}, {os.cpu_count()} cores, "
        f"{threads} threads, torch {version('torch')}, Python {platform.python_version()}.",
        "",
        markdown_table(
            ("what", "arithmetic", "goal", "measured", ""),
            [goal.row(found.get(goal.bench, missing)) for goal in GOALS],
        ),
        "",
        "The figures behind the table, seconds unless said:",
        "",
    ]
    for name, bench in BENCHES.items():
        if name in found:
            lines += [f"`tacl bench {bench.command}`", "", *_listed(found[name]), ""]
    return "\n".join([*lines, ""])


def _listed(figures: Figures) -> Iterator[str]:
    for name, value in figures.items():
        yield f"- {name}: {_said(value)[1:-1] if isinstance(value, dict) else _said(value)}"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_said(one)}" for key, one in value.items()) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
