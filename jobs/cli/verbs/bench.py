"""bench: measures cost, as ratios within one run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jobs import console
from jobs.cli.app import Client, Told, app, verb
from jobs.cli.options import Group, number, option, place
from tacl.errors import BadConfig
from tacl.training.config import Precision

if TYPE_CHECKING:
    from jobs.benchmarks.load import LoadPlan
    from jobs.benchmarks.scale import CheckedGoal

bench = typer.Typer(
    cls=Group, no_args_is_help=True, help="Measure cost on this machine, as ratios within one run."
)
app.add_typer(bench, name="bench", rich_help_panel="research")

Model = Annotated[
    str, option("SPEC", "Base model, as for `up`; random weights unless weights are named.")
]
Rounds = Annotated[int, number("Rounds; every variant runs once in each.")]


def _writable(out: Path | None) -> Path | None:
    """Checked before anything is measured."""
    if out is not None:
        folder = out.absolute().parent
        place = out if out.exists() else folder
        if out.is_dir() or not folder.is_dir() or not os.access(place, os.W_OK):
            raise typer.BadParameter(
                f"no file can be written at {out}; make its folder, or name another"
            )
    return out


def _drawable(out: Path | None) -> Path | None:
    """The same for the plot, which is written beside the tables."""
    if (out := _writable(out)) is not None:
        if out.suffix == ".png":
            raise typer.BadParameter(f"the plot is written at {out}; name a file.md for the tables")
        _writable(out.with_suffix(".png"))
    return out


Out = Annotated[
    Path | None, place("FILE", "Write the tables there, as Markdown.", callback=_writable)
]
Drawn = Annotated[
    Path | None, place("FILE.md", "Write the tables there, and a plot beside.", callback=_drawable)
]
Vit = "open_clip:ViT-B-32"


@verb("bench", of=bench)
def step(
    model: Model = Vit,
    dtype: Annotated[Precision, typer.Option(help="Number format of the passes.")] = "float32",
    batch: Annotated[int, number("Rows per step; an eighth as many are penalised.")] = 16,
    rounds: Rounds = 5,
) -> Told:
    """A training step: ordinary, by dual pass, and by torch.func.jvp.

    A step is zero gradients, forward, backward, over the same trained blocks in eval mode.
    """
    from jobs.benchmarks.step import bench_step

    return _run(lambda say: bench_step(model, dtype, batch, rounds, _device(), say), "step")


@verb("bench", of=bench)
def compose(
    model: Model = Vit,
    vectors: Annotated[str, option("T,T,...", "Numbers of vectors to add up.")] = "2,8,22",
    batch: Annotated[int, number("Rows of an aTLAS step.")] = 16,
    rounds: Rounds = 5,
) -> Told:
    """Sums of random vectors on disk, and a step that learns their coefficients."""
    from jobs.benchmarks.compose import bench_compose

    counts = _counts("--vectors", vectors)
    return _run(lambda say: bench_compose(model, counts, batch, rounds, _device(), say), "compose")


@verb("bench", of=bench)
def evaluate(
    model: Model = "embedded",
    rows: Annotated[int, number("Rows of each task.")] = 64,
    rounds: Rounds = 5,
) -> Told:
    """All pairs of 8 vectors on 8 tasks: from cached tangents, and by dual passes."""
    from jobs.benchmarks.evaluate import bench_evaluate

    return _run(lambda say: bench_evaluate(model, rows, rounds, _device(), say), "evaluate")


@verb("bench", of=bench)
def refresh(model: Model = "hf:minilm", rounds: Rounds = 3) -> Told:
    """The label-free refresh of a vector, against the training of one."""
    from jobs.benchmarks.refresh import bench_refresh

    return _run(lambda say: bench_refresh(model, rounds, _device(), say), "refresh")


@verb("bench", of=bench)
def submit(runs: Annotated[int, number("Tasks, one after another.")] = 3) -> Told:
    """Time from submit to ready on a cluster of its own: training, and overhead by part."""
    from jobs.benchmarks.submit import bench_submit

    return _run(lambda say: bench_submit(runs, say), "submit")


@verb("bench", of=bench)
def query(rounds: Rounds = 11) -> Told:
    """A query with fitted heads and *none of these*, against one with the heads of the training."""
    from jobs.benchmarks.query import bench_query

    return _run(lambda say: bench_query(rounds, say), "query")


@verb("bench", of=bench)
def learners(
    runs: Annotated[int, number("Trainings that wait in the queue.", 2)] = 8,
    steps: Annotated[int, number("Optimizer steps of each training.")] = 100,
    rounds: Annotated[int, number("Rounds; each way runs once in each.")] = 1,
) -> Told:
    """Queued trainings, by learners that continue with the next one, and by a process for each."""
    from jobs.benchmarks.learners import bench_learners

    return _run(lambda say: bench_learners(runs, steps, rounds, say), "learners")


@verb("bench", of=bench)
def verbs(rounds: Rounds = 5, out: Out = None) -> Told:
    """Seconds that a person waits for each verb, on a cluster of its own."""
    from jobs.benchmarks.verbs import bench_verbs, markdown

    with console.progress.counting("verbs") as say:
        found = bench_verbs(rounds, say)
    return _kept(found, markdown(found), out)


@verb("bench", of=bench, name="all")
def everything(out: Out = None) -> Told:
    """step, compose, evaluate, refresh, submit and learners, against their goals; about a quarter
    of an hour on a machine without other work."""
    from jobs.benchmarks.report import bench_all, markdown

    with console.progress.saying("bench") as say:
        found = bench_all(_device(), say)
    return _kept(found, markdown(found), out)


@verb("bench", of=bench)
def gpu(out: Out = None) -> Told:
    """What runs on a GPU: training steps in float32 and bfloat16, composing, evaluating and
    refreshing, as ratios within one run. For `results/gpu.md`."""
    import torch

    from jobs.benchmarks.report import CLUSTERS, bench_all, markdown

    if not torch.cuda.is_available():
        raise BadConfig(
            "torch finds no GPU here: `tacl bench all` measures the same on the CPU; `tacl doctor` "
            "says what torch was built for"
        )
    with console.progress.saying("bench") as say:
        found = bench_all("cuda", say, without=CLUSTERS)
    return _kept(found, markdown(found, torch.cuda.get_device_name()), out)


@verb("bench", of=bench)
def registry(
    size: Annotated[
        Literal["tenth", "full", "both"],
        typer.Option(help="full: 1,000 tasks, 10,000 versions, 100,000 models, 1,000,000 samples."),
    ] = "tenth",
    rounds: Annotated[int, number("Repetitions of each operation.", 20)] = 1000,
    url: Annotated[str | None, option("URL", "An empty registry; default: SQLite.")] = None,
    out: Out = None,
) -> Told:
    """Latencies of a large home: start, submit, look-ups, penalty batches."""
    from jobs.benchmarks.registry import ROWS, SIZES, beside, markdown, times
    from jobs.benchmarks.scale import bench_scale

    if url is not None and size == "both":
        raise BadConfig("one empty registry holds one size: give --size tenth or --size full")
    chosen = {name: home for name, home in SIZES.items() if size in (name, "both")}
    with console.progress.saying("filling a home") as say:
        found = bench_scale(chosen, rounds, say, url, ROWS, beside)
    kind = (url or "sqlite").split(":")[0]
    text = markdown(found, f" --size {size} --rounds {rounds}", kind)
    sizes = {name: home.size for name, home in found.homes.items()}
    told = {"machine": found.machine, "registry": kind, "sizes": sizes, "times": times(found)}
    return _kept(told, text, out)


SMALLER = {"1,000": "100", "10,000": "1,000"}


@verb("bench", of=bench)
def scale(
    tasks: Annotated[
        Literal["1,000", "10,000"],
        typer.Option(help="Tasks of the larger home, each with 100 users; a tenth in the other."),
    ] = "10,000",
    rounds: Annotated[int, number("Repetitions of each call.", 20)] = 200,
    fleet: Annotated[
        int,
        option(
            "N", "Then N learners ask through Ray, and more until a goal is missed; 0: none.", min=0
        ),
    ] = 0,
    out: Drawn = None,
) -> Told:
    """CPU time and bytes of every call, starts and the lock, at two sizes of a home."""
    from jobs.benchmarks.arriving import in_small_homes
    from jobs.benchmarks.fleet import bench_fleet
    from jobs.benchmarks.scale import SIZES, bench_scale
    from jobs.benchmarks.scale_tables import markdown, picture
    from jobs.benchmarks.stream import AT, upkeep

    with console.progress.saying("filling a home") as say:
        found = bench_scale({n: SIZES[n] for n in (SMALLER[tasks], tasks)}, rounds, say)
        fewer = [count for count in AT if count < min(found.arrivals)]
        found = replace(found, few=in_small_homes(fewer, say), upkeep=[upkeep(n) for n in AT])
        if fleet:
            found = replace(found, fleets=bench_fleet(fleet, say))
    if out is not None:
        chosen = f" --tasks {tasks} --rounds {rounds}" + (f" --fleet {fleet}" if fleet else "")
        out.write_text(markdown(found, f"{chosen} --out {out}"), encoding="utf-8")
        picture(found, out.with_suffix(".png"))
    return {"rows": found.goals()}, lambda told: _goals(told["rows"])


@verb("bench", of=bench)
def arrivals(client: Client, out: Drawn = None) -> Told:
    """What each task of a home cost when it arrived: training, measuring, refreshing, heads."""
    from jobs.benchmarks.arrivals import bench_arrivals, markdown, picture

    found = bench_arrivals(client.home)
    drawn = out and out.with_suffix(".png")
    if drawn:
        picture(found, drawn)
    return _kept(found, markdown(found, drawn and drawn.name), out)


def _goals(found: Sequence[CheckedGoal]) -> Any:
    shown = console.tables.table("what", "goal", "measured", "", right=("goal", "measured"))
    for one in found:
        missed = "missed" if one.missed else ""
        shown.add_row(one.what, f"{one.goal:,g}", f"{one.measured:,.4g}", missed)
    return shown


@verb("bench", of=bench)
def serve(
    users: Annotated[
        str | None,
        option(
            "U,U,...",
            "Numbers of users, each with a recipe of their own; default 1,10,100,1000. With "
            "--predictors one number, of all; default 500.",
        ),
    ] = None,
    requests: Annotated[int, number("Requests of each row.", 2)] = 400,
    at_once: Annotated[int, number("Concurrent requests.")] = 32,
    soak: Annotated[int, option("N", "Then send N requests while replicas are killed.", min=0)] = 0,
    pictures: Annotated[int, number("Images per request of --soak.", most=64)] = 1,
    kills: Annotated[int, number("Replicas killed during --soak.", 0)] = 20,
    predictors: Annotated[
        str | None,
        option("P,P,...", "Instead: so many predictors, over vectors that no memory holds."),
    ] = None,
    vectors: Annotated[str, option("N", "Small vectors, with --predictors.")] = "100",
    part: Annotated[float, number("Part of their bytes that predictors may fill.", 0, 1)] = 0.25,
    rounds: Rounds = 5,
    out: Out = None,
) -> Told:
    """Queries over HTTP: many users with distinct recipes; every answer is checked.

    On a home of its own, with the embedded base model and random vectors.
    """
    from jobs.benchmarks.load import LoadPlan

    asking = LoadPlan(requests, at_once)
    if predictors is not None:
        if soak:
            raise BadConfig("--soak kills replicas of one predictor: leave --predictors out")
        return _crowd(predictors, _count("--vectors", vectors), users or "500", asking, part, out)
    from jobs.benchmarks.serving import bench_alone, written

    users = users or "1,10,100,1000"
    counts = _counts("--users", users)
    killing = LoadPlan(soak, at_once, pictures, kills) if soak else None
    chosen = f"--users {users} --requests {requests} --at-once {at_once} --rounds {rounds}"
    chosen += f" --soak {soak} --pictures {pictures} --kills {kills}" if soak else ""
    command = f"tacl bench serve {chosen} --out results/serving.md"
    with console.progress.saying("serving") as say:
        found = bench_alone(counts, asking, killing, rounds, say)
    return _kept(found, written(found, command), out)


def _crowd(
    predictors: str, vectors: int, users: str, asking: LoadPlan, part: float, out: Path | None
) -> Told:
    from jobs.benchmarks.population import TERMS
    from jobs.benchmarks.predictors import PredictorsPlan, bench_predictors
    from jobs.benchmarks.predictors_told import markdown

    if vectors < 4 * TERMS:
        raise BadConfig(f"--vectors {vectors}: models are of {TERMS} vectors; give {4 * TERMS}")
    counts = _counts("--predictors", predictors)
    plan = PredictorsPlan(counts, vectors, _count("--users", users), asking, part)
    chosen = f"--predictors {predictors} --vectors {vectors} --users {plan.users}"
    chosen += f" --part {part:g} --requests {asking.requests} --at-once {asking.at_once}"
    with console.progress.saying("serving") as say:
        found = bench_predictors(plan, say)
    command = f"{_of_serve()}tacl bench serve {chosen} --out results/predictors.md"
    told = {"rows": found.rows, "echo": found.echo, "goals": found.goals()}
    return _kept(told, markdown(found, command), out)


def _of_serve() -> str:
    """The settings of Ray Serve in the environment, which the cluster of a bench inherits."""
    told = (f"{name}={value} " for name, value in sorted(os.environ.items()))
    return "".join(one for one in told if one.startswith("RAY_SERVE_"))


def _count(flag: str, text: str) -> int:
    """A positive number, which may be written as 10,000."""
    whole = text.replace(",", "")
    if not whole.isdecimal() or not int(whole):
        raise BadConfig(f"{flag} {text!r}: give one number, such as 10000")
    return int(whole)


def _counts(flag: str, text: str) -> list[int]:
    return [_count(flag, part) for part in text.split(",")]


@verb("bench", of=bench)
def residency(
    vectors: Annotated[int, number("Vectors of all tasks.", 20)] = 2000,
    users: Annotated[int, number("Users, each with a recipe.")] = 10_000,
    requests: Annotated[int, number("Questions of all users.", 1000)] = 20_000,
    out: Out = None,
) -> Told:
    """Vectors that predictors find in memory when it holds a part of all: counted, not timed."""
    from jobs.benchmarks.residency import LoadSizes, bench_residency, markdown

    sizes = LoadSizes(vectors, users, requests)
    with console.progress.counting("residency") as say:
        found = bench_residency(sizes, say)
    return _kept(found, markdown(found, sizes), out)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _kept(found: Any, text: str, out: Path | None) -> Told:
    """The results, printed as the Markdown that is also written to `out`."""
    if out is not None:
        out.write_text(text, encoding="utf-8")
    return found, lambda _: text


def _run(measure: Any, what: str) -> Told:
    with console.progress.counting(what) as say:
        return measure(say), _table


def _table(found: dict[str, Any]) -> Any:
    """One figure a line, named as in --json."""
    table = console.tables.table("figure", "value", right=("value",))
    for name, value in _flat(found):
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    return table


def _flat(found: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name} ")
        else:
            yield before + name, value
