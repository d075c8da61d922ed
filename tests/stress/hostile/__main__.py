"""Windows with and without the attackers, and kills. The package says what for."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from cluster.client.client import Client
from jobs.benchmarks.timing import processor
from tests.stress.hostile.attacks import attack
from tests.stress.hostile.figures import written
from tests.stress.hostile.judging import MIB, Found, answered, defects, kept, statuses
from tests.stress.hostile.killing import ORDER, Processes, seconds_until_whole
from tests.stress.hostile.people import MODELS, Ann, Bob, live
from tests.stress.hostile.scene import Place, prepared
from tests.stress.hostile.told import Phase, Span, read
from tests.support.opened import watched
from tests.support.places import ROOT

MADE = 20  # things that bob has made in a minute at the most: each is owed in the end
WINDOW = 20.0  # seconds with the attackers, then as many without; fewer in a short run
FADE = 2.0  # seconds after a change of windows that count for none
OWED_SECONDS = 600.0  # until what is owed is done
LATE = 60.0  # seconds for each kill and attacker that is owed when time is over
POLL = 0.25
WEIGH = 2.0  # seconds between two looks at the memory of processes
LEARNER_SECONDS = 15.0  # until somebody else is killed because nothing is learned


class Course:
    """What is when. Kills are spread over the time, whatever the window."""

    def __init__(self, place: Place, attackers: Event, seconds: float, kills: int) -> None:
        self.place, self.processes = place, Processes(place.home)
        self.spans: list[Span] = []
        self.recovery: dict[str, list[float]] = defaultdict(list)
        self._attackers, self._chance = attackers, random.Random(0)
        self._end = time.monotonic() + seconds
        self._kills, self._window = kills, min(WINDOW, seconds / 6)

    def run(self) -> None:
        since, due = time.monotonic(), self._next_kill()
        turn = weigh = since
        turn += self._window
        while (now := time.monotonic()) < self._end or now < self._end + LATE * self._owed():
            if now > weigh:
                self.processes.weigh()
                weigh = now + WEIGH
            if now > due and (kind := self._victim(now > due + LEARNER_SECONDS)):
                self._close(since)
                turn += self._until_whole(kind)
                since, due = time.monotonic(), self._next_kill()
            if now > turn and not (self._phase() == "attacked" and self._unmet()):
                self._close(since)
                self._turn()
                since = time.monotonic()
                turn = since + self._window
            time.sleep(POLL)
        self._close(since)

    def _phase(self) -> Phase:
        return "attacked" if self._attackers.is_set() else "quiet"

    def _close(self, since: float) -> None:
        self.spans.append(Span(self._phase(), since, time.monotonic()))

    def _turn(self) -> None:
        began = time.monotonic()
        self._attackers.clear() if self._attackers.is_set() else self._attackers.set()
        time.sleep(FADE)
        self.spans.append(Span("settling", began, time.monotonic()))

    def _left(self) -> int:
        return self._kills - self.processes.killed.total()

    def _unmet(self) -> int:
        """Attackers who were never answered: on a busy machine they come last."""
        return sum(not self.place.told(name).stat().st_size for name in ("mallory", "eve"))

    def _owed(self) -> int:
        return self._left() + self._unmet()

    def _next_kill(self) -> float:
        left = self._left()
        mean = max(self._end - time.monotonic(), 0) / (left + 1)
        return time.monotonic() + mean * self._chance.uniform(0.6, 1.2) if left else float("inf")

    def _victim(self, impatient: bool) -> str | None:
        """Killed now; a learner is waited for, as long as one may still come."""
        kind = ORDER[self.processes.killed.total() % len(ORDER)]
        if self.processes.kill(kind, self._chance):
            return kind
        other = impatient and self.processes.kill("predictor", self._chance)
        return "predictor" if other else None

    def _until_whole(self, kind: str) -> float:
        """Seconds that this took."""
        began = time.monotonic()
        seconds = seconds_until_whole(self.place.url, self.processes)
        self.recovery[kind].append(seconds)
        self.spans.append(Span("broken", began - POLL, time.monotonic()))
        print(f"{self.processes.killed.total()} {kind}: whole after {seconds:.1f} s", flush=True)
        return time.monotonic() - began


@contextmanager
def people(place: Place, attackers: Event):
    """The four, each in a process."""
    context = multiprocessing.get_context("forkserver")  # torch is imported once for all
    context.set_forkserver_preload(["tests.stress.hostile.attacks", "tests.stress.hostile.people"])
    stop = context.Event()
    them = [
        context.Process(target=live, args=(Ann, place, "ann", stop)),
        context.Process(target=live, args=(Bob, place, "bob", stop)),
        context.Process(target=attack, args=(place, attackers, stop)),
    ]
    for one in them:
        one.start()
    try:
        until_they_began(place)
        yield
    finally:
        stop.set()
        for one in them:
            one.join(240)
            if one.exitcode is None:
                one.kill()  # it still waits for an answer
        if any((one.exitcode or 0) > 0 for one in them):
            raise RuntimeError("one of the four raised what it should not; see above")


def until_they_began(place: Place) -> None:
    end = time.monotonic() + 600
    them = [place.told(name) for name in ("ann", "bob", "mallory", "eve")]
    while not all(one.exists() for one in them) and time.monotonic() < end:
        time.sleep(0.2)


def settled(place: Place) -> None:
    """What is owed is done, tried again where it failed; the attackers' own is cancelled."""
    import httpx2

    end = time.monotonic() + OWED_SECONDS
    with httpx2.Client(base_url=place.url, headers=place.headers("root"), timeout=60) as http:
        while time.monotonic() < end:
            found = http.get("/v1/status")
            if found.is_success:
                open_ones = [t for t in found.json()["tasks"] if t["state"] != "ready"]
                owed = [t for t in open_ones if t["owner"] == "bob"] + found.json()["work"]
                if not owed:
                    return
                for task in open_ones:
                    verb = "retry" if task["owner"] == "bob" else "cancel"
                    if task["state"] in ("failed", "cancelled") or verb == "cancel":
                        http.post(f"/v1/tasks/{task['name']}/{verb}")
            time.sleep(2)


def hostile(folder: Path, minutes: float, kills: int, command: str) -> Found:
    attackers = multiprocessing.get_context("spawn").Event()
    client = Client(folder / "home")
    try:
        place = prepared(folder, MODELS, math.ceil(MADE * minutes))
        with watched(place.secret) as opened:
            with people(place, attackers):
                course = Course(place, attackers, 60 * minutes, kills)
                course.run()
            attackers.clear()
            wrong = ["a file of the server was opened"] if opened() else []
        settled(place)
    finally:
        client.down()
    told = read(folder.glob("*.jsonl"))
    of_disk = kept(place)
    wrong += of_disk.wrong + [f"{t.who}: {t.what}: {t.wrong}" for t in told if t.wrong]
    waited = answered(told, course.spans)
    slower = waited["attacked"].p99 / max(waited["quiet"].p99, 1e-9)
    refused = Counter(one.error for one in told if one.error)
    memory = {kind: most // MIB for kind, most in sorted(course.processes.most.items())}
    return Found(
        command=command,
        machine=f"{len(os.sched_getaffinity(0))} CPUs of {processor()}, shared with other work",
        minutes=minutes,
        lost=of_disk.lost,
        doubled=of_disk.doubled,
        wrong=wrong,
        defects=defects(told, course.spans),
        answers=statuses(told),
        refused=dict(refused.most_common()),
        killed=dict(course.processes.killed),
        recovery=dict(course.recovery),
        tasks=of_disk.tasks,
        vectors=of_disk.vectors,
        quiet=waited["quiet"],
        attacked=waited["attacked"],
        whole_run=waited["whole_run"],
        slower=slower,
        memory=memory,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="of the home and all that was told; is kept")
    parser.add_argument("--results", type=Path, help="folder for hostile.json and hostile.md")
    chosen = parser.parse_args()
    command = f"python -m tests.stress.hostile --minutes {chosen.minutes:g} --kills {chosen.kills}"
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        place = chosen.folder or Path(folder)
        found = hostile(place, chosen.minutes, chosen.kills, command)
    if chosen.results:
        (chosen.results / "hostile.json").write_text(found.model_dump_json(indent=2) + "\n")
        (chosen.results / "hostile.md").write_text(written(found))
    print(written(found))
    killed, faults = sum(found.killed.values()), len(found.faults())
    print(f"kills={killed} faults={faults}", flush=True)
    return 0 if killed >= chosen.kills and not faults else 1


if __name__ == "__main__":
    sys.exit(main())
