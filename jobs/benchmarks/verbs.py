"""How long a person waits for the verbs of `tacl`, from the key to the prompt.

Each is a process of its own, as in a shell, and asks a cluster that runs for this alone: two tasks
of the embedded encoder, and a model of both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from cluster.client.client import Client
from jobs.benchmarks.submit import own_cluster
from jobs.benchmarks.timing import Race, Run, Say, in_turns, machine
from jobs.console.documents import markdown_table
from tacl import embedded
from tacl.embedded.parquet import png

GOAL = 1.0  # seconds, where nothing is computed
TASKS, USER = ("signs", "land"), "ann"
PICTURE = "sign.png"
NEW, TOKEN = "NEW", "TOKEN"  # of a line: a folder that no line had before, and digits of a token

Words = tuple[str, ...]
AWAY: tuple[Words, ...] = (("--help",), ("--version",), ("submit", "--help"))  # of no home
READS: tuple[Words, ...] = (
    ("status",),
    ("status", TASKS[0]),
    ("vectors",),
    ("logs", TASKS[0]),
    ("alias", TASKS[0]),
    ("alias", f"{TASKS[0]}@tried", "v1"),
    ("wait",),
    ("retry", TASKS[0]),
    ("interference",),
    ("interference", TASKS[0]),
    ("cancel", TASKS[0]),
    ("users", "issue", "bob"),
    ("users", "rotate", TOKEN),
    ("users", "list"),
    ("users", "revoke", "bob"),  # of each round what was issued in it
    ("gc", "--dry-run"),
    ("compose", USER, *(f"+{task}" for task in TASKS)),
    ("compose", USER, "--update"),
    ("evaluate", USER),  # once it was measured
)
COMPUTES: tuple[Words, ...] = (
    ("export-vector", TASKS[0], "--out", NEW),  # reads the vector, by torch
    ("query", USER, PICTURE),
    ("explain", USER, PICTURE),
    ("doctor",),
    ("backup", "copy"),
)
NOT_TIMED: dict[str, str] = {  # why
    "init": "asks three questions, once for a home",
    "up": "starts Ray and the coordinator, once for this cluster",
    "down": "ends the cluster that all others ask",
    "restore": "makes a home, as long as copying its files takes",
    "submit": "`tacl bench submit` and `tacl bench arrivals` time it to its end",
    "import": "needs a checkpoint; its vector is measured as that of a training",
    "refresh": "`tacl bench refresh` times the work",
    "remove": "once for a task",
    "export": "evaluates the model as an ordinary one, as long as its rows take",
    "serve": "starts processes; `tacl bench serve` times what they answer",
    "watch": "ends with Ctrl-C",
    "demo": "minutes: tells its own times",
    "reproduce": "minutes to hours, by the table",
    "pretrain": "hours",
    "bench": "times others",
}


@dataclass(frozen=True)
class VerbTime:
    """Seconds of a verb: the median, and how far apart the middle half of them lies. `goal` is None
    where something is computed."""

    verb: str
    seconds: float
    spread: float
    goal: float | None

    @property
    def missed(self) -> bool:
        return self.goal is not None and self.seconds > self.goal


@dataclass(frozen=True)
class VerbTimes:
    rounds: int
    processor: str
    verbs: tuple[VerbTime, ...]


def bench_verbs(rounds: int, say: Say) -> VerbTimes:
    """Every verb `rounds` times, in turns, after one that is not counted."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with own_cluster(folder / "home", "embedded") as client:
            token = _fill(client, folder)
            at_home = ("--home", str(client.home.path))
            lines = {words: words for words in AWAY}
            lines |= {words: (*words, *at_home) for words in (*READS, *COMPUTES)}
            race = in_turns(
                {" ".join(words): _typed(line, folder, token) for words, line in lines.items()},
                rounds,
                "cpu",
                say,
            )
    return VerbTimes(rounds, machine(), times(race))


def times(race: Race) -> tuple[VerbTime, ...]:
    computing, spreads = {" ".join(words) for words in COMPUTES}, race.spreads()
    return tuple(
        VerbTime(verb, race.median(verb), spreads[verb], None if verb in computing else GOAL)
        for verb in race.seconds
    )


def markdown(found: VerbTimes) -> str:
    """The table for results/verbs.md."""
    lines = [
        (f"`tacl {one.verb}`", f"{one.seconds:.2f}", f"{one.spread:.2f}", goal_of(one))
        for one in found.verbs
    ]
    return (
        f"# What a person waits for\n\nSeconds of a command in a shell, median of {found.rounds}. "
        "Spread: the middle half of them lies within so many seconds. Two tasks of the embedded "
        f"encoder, one model. {found.processor}.\n\n    tacl bench verbs --rounds {found.rounds} "
        f"--out results/verbs.md\n\n"
        f"{markdown_table(('command', 'seconds', 'spread', 'goal'), lines, '---:')}\n"
    )


def goal_of(one: VerbTime) -> str:
    if one.goal is None:
        return "computes"
    return f"{one.goal:g}, missed" if one.missed else f"{one.goal:g}"


def _fill(client: Client, folder: Path) -> str:
    """What the lines ask about. Digits of a token."""
    for task in TASKS:
        embedded.write_parquet(task, folder / task, train_rows=100, test_rows=40, seed=0)
        client.submit(task, folder / task, steps=5, engine="plain")
    client.wait()
    client.compose(USER, [f"+{task}" for task in TASKS])
    client.evaluate(USER)
    images, _ = embedded.generate(TASKS[0], 1, seed=77)
    (folder / PICTURE).write_bytes(png(images[0]))
    client.issue_token(USER)
    return client.tokens(USER)[0].token


def _typed(words: Sequence[str], folder: Path, token: str) -> Run:
    numbers = count()

    def run() -> None:
        told = {NEW: f"new-{next(numbers)}", TOKEN: token}
        command = [sys.executable, "-m", "jobs.cli.main", *(told.get(word, word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise RuntimeError(
                f"tacl {' '.join(words)}: exit code {done.returncode}, {done.stderr}"
            )

    return run
