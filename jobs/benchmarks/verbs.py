"""How long a person waits for the verbs of `tacl`, from Enter to the prompt.

Each is a process of its own, as in a shell. Most use a cluster that runs only for them: two tasks
of the embedded base model, and a model of both. Verbs that start, change or end a home have another
home in each round, from `init` to `down`.
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
from jobs.benchmarks.serving import free_port
from jobs.benchmarks.submit import CPUS
from jobs.benchmarks.timing import Race, Run, Say, in_turns, machine
from jobs.console.documents import markdown_table
from jobs.console.own_cluster import own_cluster
from tacl import embedded
from tacl.embedded.parquet import png

GOAL = 1.0  # seconds, if nothing is computed
TASKS, USER = ("signs", "land"), "ann"
PICTURE = "sign.png"
# Placeholders in a line: a folder that does not exist yet, digits of a token, a free port; the home
# of the round and what belongs to it.
NEW, TOKEN, PORT = "NEW", "TOKEN", "PORT"
HOME, COPY, RESTORED, VECTOR = "HOME", "COPY", "RESTORED", "VECTOR"
OF_ROUND = (HOME, COPY, RESTORED, VECTOR)

Words = tuple[str, ...]
AWAY: tuple[Words, ...] = (("--help",), ("--version",), ("submit", "--help"))  # without a home
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
    ("users", "revoke", "bob"),  # those issued in the same round
    ("gc", "--dry-run"),
    ("compose", USER, *(f"+{task}" for task in TASKS)),
    ("compose", USER, "--update"),
    ("evaluate", USER),  # measured before, so read
)
COMPUTES: tuple[Words, ...] = (
    ("export-vector", TASKS[0], "--out", NEW),  # reads the vector, with torch
    ("query", USER, PICTURE),
    ("explain", USER, PICTURE),
    ("doctor",),
    ("backup", "copy"),
)
OF_HOME = ("--home", HOME)
SHORT = ("--steps", "5", "--engine", "plain", "--refresh", "never")
LIFE: tuple[Words, ...] = (  # of a home, in this order
    ("init", "--base", "embedded", "--cpus", "2", *OF_HOME),
    ("up", *OF_HOME),
    ("submit", "signs", "--data", "signs", *SHORT, *OF_HOME),
    ("wait", "signs", *OF_HOME),
    ("submit", "land", "--data", "land", *SHORT, "--watch", *OF_HOME),
    ("refresh", "signs", *OF_HOME),
    ("compose", USER, "+signs", "+land", *OF_HOME),
    ("evaluate", USER, *OF_HOME),
    ("compose", "bob", "+signs", "+land", "--method", "ties", *OF_HOME),
    ("export", USER, "--out", NEW, "--accept", *OF_HOME),
    ("export-vector", "signs", "--out", VECTOR, *OF_HOME),
    ("import", "again", VECTOR, "--data", "signs", "--again", *OF_HOME),
    ("serve", "--port", PORT, *OF_HOME),
    ("query", USER, PICTURE, *OF_HOME),  # by the predictor of the server
    ("serve", "--stop", *OF_HOME),
    ("remove", "again", "--purge", *OF_HOME),
    ("gc", *OF_HOME),
    ("backup", COPY, *OF_HOME),
    ("restore", COPY, RESTORED),
    ("down", *OF_HOME),
)
FIRST = " (first)"  # the first run in a life, of a line that the other home repeats
QUICK = ("init", f"compose {USER}")  # in a life: lines that compute nothing
NOT_TIMED: dict[str, str] = {  # why
    "watch": "ends with Ctrl-C",
    "demo": "minutes: tells its own times",
    "reproduce": "minutes to hours, by the table",
    "pretrain": "hours",
    "bench": "times others",
}


@dataclass(frozen=True)
class VerbTime:
    """Seconds of a verb: the median, and the interquartile range. `goal` is None if something is
    computed."""

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
    """Run every verb `rounds` times, in turns, after one run that is not counted."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with own_cluster(folder / "home", lambda new: new.up("embedded", cpus=CPUS)) as client:
            token = _fill(client, folder)
            at_home = ("--home", str(client.home.path))
            lines = {" ".join(words): words for words in AWAY}
            lines |= {" ".join(words): (*words, *at_home) for words in (*READS, *COMPUTES)}
            lines |= {shown(words): words for words in LIFE}
            runs = {verb: _typed(line, folder, token) for verb, line in lines.items()}
            try:
                race = in_turns(runs, rounds, "cpu", say)
            finally:
                for home in folder.glob(f"{HOME}-*"):
                    Client(home).down()
    return VerbTimes(rounds, machine(), times(race))


def shown(words: Words) -> str:
    """A line of a life, without the options that make its trainings short."""
    line = " ".join(word for word in words if word not in (*OF_HOME, *SHORT))
    return line + FIRST if line in {" ".join(known) for known in (*READS, *COMPUTES)} else line


def times(race: Race) -> tuple[VerbTime, ...]:
    quick = {" ".join(words) for words in (*AWAY, *READS)}
    quick |= {verb for verb in map(shown, LIFE) if verb.startswith(QUICK)}
    spreads = race.spreads()
    return tuple(
        VerbTime(verb, race.median(verb), spreads[verb], GOAL if verb in quick else None)
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
        "encoder, one model. What starts, changes or ends a home has a new one in each round, and "
        f"so has what is marked{FIRST}. {found.processor}.\n\n"
        f"    tacl bench verbs --rounds {found.rounds} --out results/verbs.md\n\n"
        f"{markdown_table(('command', 'seconds', 'spread', 'goal'), lines, '---:')}\n\n"
        f"Not timed: {'; '.join(f'`{verb}`, {why}' for verb, why in NOT_TIMED.items())}.\n"
    )


def goal_of(one: VerbTime) -> str:
    if one.goal is None:
        return "computes"
    return f"{one.goal:g}, missed" if one.missed else f"{one.goal:g}"


def _fill(client: Client, folder: Path) -> str:
    """Make what the lines refer to; returns digits of a token."""
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
    """A function that runs the line; each call is a round."""
    rounds = count()

    def run() -> None:
        number = next(rounds)
        told = {place: f"{place}-{number}" for place in OF_ROUND}
        told |= {NEW: f"{words[0]}-{number}", TOKEN: token, PORT: str(free_port())}
        command = [sys.executable, "-m", "jobs.cli.main", *(told.get(word, word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise RuntimeError(
                f"tacl {' '.join(words)}: exit code {done.returncode}, {done.stderr}"
            )

    return run
