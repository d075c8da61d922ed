"""`tacl demo`: the story on a cluster of its own, on generated images; nothing is left running."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.text import Text

from cluster.client.client import Client
from cluster.runtime import processors
from jobs.console import tables as show
from jobs.console.documents import print_json
from jobs.console.own_cluster import ending_by, interrupt, own_cluster
from jobs.console.progress import saying, stderr, watching
from jobs.demo import tables
from jobs.demo.story import ArrivedTask, Chapter, Plan, Subtraction, Users, story
from tacl.errors import HomeInUse

CPUS = 4  # at most; every CPU of a cluster has a process that waits for work


@dataclass(frozen=True)
class ToldStory:
    """All chapters by kind, as `--json` prints them."""

    arrivals: list[ArrivedTask]
    users: list[Users]
    subtractions: list[Subtraction]
    seconds: float


def run(keep: Path | None = None, as_json: bool = False, plan: Plan | None = None) -> None:
    """Run the demo; the cluster and, unless `keep` names a place, its home are removed at the end.

    Raises HomeInUse if `keep` is no new or empty directory, KeyboardInterrupt, and errors of the
    cluster.
    """
    started, told = time.monotonic(), []
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network
    console = stderr() if as_json else show.console()
    plan = plan or Plan()
    with ending_by(interrupt), _home(keep) as home, tempfile.TemporaryDirectory() as data:
        console.print(_opening(plan))
        with own_cluster(home, _start) as client, watching(console) as watch:
            for chapter in story(client, Path(data), plan, watch):
                told.append(chapter)
                console.print(tables.chapter(chapter))
    found = document(told, time.monotonic() - started)
    console.print(tables.summary(found.arrivals))
    _close(console, found.seconds, keep)
    if as_json:
        print_json(found)


def document(told: list[Chapter], seconds: float) -> ToldStory:
    return ToldStory(
        [one for one in told if isinstance(one, ArrivedTask)],
        [one for one in told if isinstance(one, Users)],
        [one for one in told if isinstance(one, Subtraction)],
        seconds,
    )


def _opening(plan: Plan) -> Text:
    return Text(
        f"{len(plan.tasks)} tasks arrive one after another. Each is trained separately, by "
        "DeepSpeed, on its own labelled images, with the tauJp penalty on unlabelled images of the "
        "tasks that arrived before it. Older vectors are then refreshed against it, without labels."
    )


def _close(console: Console, seconds: float, keep: Path | None) -> None:
    minutes = f"{int(seconds) // 60} min {int(seconds) % 60} s"
    console.print(Text(f"\ndone in {minutes}; nothing is left running"))
    if keep is not None:
        home = quote(str(keep))
        console.print(Text(f"the home is kept: tacl up --home {home}; tacl status --home {home}"))


@contextmanager
def _home(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tacl-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and not (keep.is_dir() and not any(keep.iterdir())):
        raise HomeInUse(f"{keep} is not empty; the demo makes a home of its own in a new directory")
    yield keep


def _start(client: Client) -> None:
    with saying("starting a cluster on this machine") as say:
        client.up("embedded", cpus=min(CPUS, processors.cpus()), progress=say)
