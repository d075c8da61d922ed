"""Many real tasks, one after the other, through one home, as a person would: `tacl up`, and `tacl
submit` for each. Halfway a training is interrupted by `tacl down`; `tacl up` goes on with it.

    python -m tests.stress.many --data DIR --base SPEC --generic DATA --home H --out FILE.md

DIR has a folder of Parquet for each data set, of texts or pictures; sets of many classes are cut
into tasks of some of them. Stopped at any moment, the same command goes on. At the end FILE.md says
what each arrival cost (`tacl bench arrivals`), and how good the sum of all is.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.client.client import Client
from cluster.domain.status import TaskState
from jobs.benchmarks.timing import processor
from tacl.errors import ClusterNotRunning

CUT = {"banking77": 7, "clinc150": 10}  # classes of a piece
USER = "all"


def pieces(data: Path, without: Path, into: Path, rows: int) -> Iterator[Path]:
    """A folder for each task, of at most so many training rows."""
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        if folder.resolve() == without.resolve():
            continue
        train = pq.read_table(folder / "train-00000.parquet")
        classes = len(_names(train))
        each = CUT.get(folder.name, classes)
        for start in range(0, classes, each):
            name = folder.name if each == classes else f"{folder.name}_{start // each + 1:02d}"
            yield _piece(folder, into / name, range(start, start + each), rows)


def _piece(folder: Path, into: Path, classes: range, rows: int) -> Path:
    """Its rows of these classes, which are numbered from 0."""
    into.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        table = pq.read_table(folder / f"{part}-00000.parquet")
        names, labels = _names(table), table["label"].to_pylist()
        inside = [row for row, label in enumerate(labels) if label in classes]
        random.Random(0).shuffle(inside)
        (column,) = (name for name in table.column_names if name != "label")
        chosen = table[column].take(inside[:rows])
        given = pa.array([names[labels[row]] for row in inside[:rows]])
        path = into / f"{part}-00000.parquet"
        pq.write_table(pa.table({column: chosen, "label": given}), path)
    return into


def _names(table: pa.Table) -> Sequence[str]:
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    return features["label"]["names"]


def tacl(home: Path, *words: str) -> None:
    command = (sys.executable, "-m", "jobs.cli.main", *words, "--home", str(home))
    print("$ tacl", *words, flush=True)
    subprocess.run(command, check=True)


def through(home: Path, tasks: Sequence[Path], *options: str) -> None:
    """Each is there, and nothing is owed, before the next is submitted."""
    client = Client(home)
    for number, task in enumerate(tasks):
        there = {one.name: one.state for one in client.status().tasks}
        if task.name not in there:
            tacl(home, "submit", task.name, "--data", str(task), *options)
            if number == len(tasks) // 2:
                time.sleep(30)
                tacl(home, "down")
                tacl(home, "up")
        while (status := client.status()).work or any(
            one.state not in (TaskState.READY, TaskState.FAILED) for one in status.tasks
        ):
            time.sleep(2)
        print(f"{number + 1} of {len(tasks)}: {task.name} is there", flush=True)


def report(client: Client, tasks: Sequence[Path], command: str, picture: str) -> str:
    from jobs.benchmarks.arrivals import bench_arrivals, markdown

    client.compose(USER, [f"+{task.name}" for task in tasks])
    found = client.evaluate(USER)
    shares = {
        "task known": found.absolute,
        "task unknown": found.task_unknown,
        "on the frozen base, known": found.frozen_known,
        "unknown": found.frozen_unknown,
        "normalised": found.normalized,
    }
    said = ", ".join(f"{what} {100 * one:.1f}" for what, one in shares.items() if one is not None)
    figures = f"The sum of all {len(tasks)}, on their test rows, in %: {said}."
    return f"""# What each arrival cost

`{command}` on {processor()}, with other work beside. A training was interrupted by `tacl down`
halfway; `tacl up` went on with it, and nothing else was done by hand.

{figures}

{markdown(bench_arrivals(client.home), picture)}"""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("data", "generic", "home", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--rows", type=int, default=1000, help="of training, of a task")
    parser.add_argument("--steps", type=int, help="of a training; the default of `tacl submit`")
    chosen = parser.parse_args()
    steps = ("--steps", f"{chosen.steps}") if chosen.steps else ()
    named = {"data": chosen.data, "generic": chosen.generic, "base": chosen.base}
    told = (f"--{name} {given}" for name, given in named.items())
    command = " ".join(("python -m tests.stress.many", *told, f"--rows {chosen.rows}", *steps))
    tasks = list(
        pieces(chosen.data, chosen.generic, chosen.home.with_suffix(".pieces"), chosen.rows)
    )
    client = Client(chosen.home)
    try:
        client.status()
    except ClusterNotRunning:
        tacl(chosen.home, "up", "--base", chosen.base, "--generic", str(chosen.generic))
    through(chosen.home, tasks, *steps)
    from jobs.benchmarks.arrivals import bench_arrivals, picture

    plot = chosen.out.with_suffix(".png")
    chosen.out.write_text(report(client, tasks, command, plot.name))
    picture(bench_arrivals(client.home), plot)


if __name__ == "__main__":
    main()
