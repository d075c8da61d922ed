"""Random kills over a stream of work: `python -m tests.stress.soak --kills 200`.

Tasks arrive, are refreshed, composed, cancelled and removed, aliases move; meanwhile coordinator
and learners are killed, by SIGKILL at any moment or at a named step between two I/O operations
(`cluster.failpoints`). Then all that was answered to this client is compared with what is there:

    lost     an accepted task, an alias or a model that is not there any more
    doubled  a task, a version or a run that is there twice, or a gap between versions
    wrong    a vector that is not the one of an undisturbed run with the same arrivals, a file that
             is not whole, another answer to the same request

The processes are those of a Ray cluster, or forked ones that start in milliseconds
(`tests.support.forked`). The learner (`tests.support.quick`) computes hashes instead of gradients,
with the real checkpoints and arrivals; on Ray, half of the trainings are groups of Ray Train, whose
workers are killed too (`tests.support.grouped`).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from cluster.coordinator.arrivals import Arrivals
from cluster.coordinator.recovery import restored
from cluster.domain.base import RequestContext
from cluster.domain.tasks import Arrival
from cluster.domain.work import Refreshed, RefreshWork, TrainWork
from cluster.registry import Registry
from cluster.runtime import connection
from cluster.scheduler.plan import validate
from cluster.storage.home import Home
from tacl.errors import AliasMoved, CorruptBlob, TaclError
from tests.integration.test_head import processes, start_head, until
from tests.support.fakes import ADMIN, asks, new_home, refreshed, shard_blob, submission
from tests.support.forked import Forked
from tests.support.quick import STEPS, linked, loud, vector_bytes

TASKS = 16  # at most
DEADLY = (  # of cluster.failpoints: those of the coordinator, and those of its learners
    *(f"registry {name} {when}" for name in ("accept", "publish", "finish", "start", "compose")
      for when in ("written", "committed")),
    *(f"registry {name} {when}" for name in ("move_alias", "cancel", "remove", "requeue", "told")
      for when in ("written", "committed")),
    *("work started", "work stopped", "checkpoints cleared"),
    *("checkpoint written", "checkpoint complete", "blob written", "blob stored"),
)  # fmt: skip


# -- the clusters


class Cluster(Protocol):
    """A home that is served by processes that can be killed."""

    home: Home
    wide: int  # workers of the widest training

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call the coordinator, patiently. Raises what the method raises."""
        ...

    def pids(self, title: str) -> list[int]:
        """Of the "coordinator", of every "learner" that works, or of every "worker" of a group."""
        ...

    def stop(self) -> None: ...


class OnRay:
    """The processes of `tacl up`, with a quick learner; groups of `wide` workers need one that
    forms them."""

    TITLES = {
        "coordinator": "ray::WatchedCoordinator",
        "learner": "ray::LearnerProcess",
        "worker": "ray::RayTrainWorker",
    }

    def __init__(
        self, home: Home, learner: str = "tests.support.quick:Quick", wide: int = 1
    ) -> None:
        self.home, self.wide = home, wide
        (home.path / "dies").mkdir()
        os.environ["TACL_DIES_IN"] = str(home.path / "dies")  # of the head, not of this process
        self._head = start_head(home, learner=learner)
        del os.environ["TACL_DIES_IN"]
        try:
            until(home.running, "the head is ready", 300)
        except AssertionError:
            self.stop()
            raise

    def ask(self, method: str, *arguments: Any) -> Any:
        return connection.call_with_retries(self.home, connection.coordinator, method, arguments)

    def pids(self, title: str) -> list[int]:
        wanted = self.TITLES[title]
        return [pid for pid, found in processes(self.home).items() if wanted in found]

    def stop(self) -> None:
        connection.leave(self.home)
        self._head.send_signal(signal.SIGTERM)
        self._head.communicate(timeout=120)
        until(lambda: not processes(self.home), "nothing is left running", 60)


# -- the client


class Stream:
    """Asks for things, remembers what it was answered, and asks again."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.accepted: dict[str, str] = {}  # task -> run
        self.removed: set[str] = set()
        self.models: dict[str, str] = {}  # user -> digest
        self.aliases: dict[str, int] = {}  # of the alias "blessed", by task
        self.answers: list[tuple[tuple[Any, ...], Any]] = []
        self.wrong: list[str] = []
        self.number = 0

    def act(self) -> None:
        ready = self.ready()
        room = len(self.accepted) < TASKS
        acts: list[Callable[[], None]] = [self.submit] * (6 if room and len(ready) < 8 else room)
        acts += [self.repeat, self.retry] * 2
        if ready:
            acts += [self.compose, self.bless, self.refresh] * 3 + [self.grow]
        if self.accepted.keys() - self.removed:
            acts += [self.cancel]
        if len(ready) > 5:
            acts += [self.remove]
        self.chance.choice(acts)()

    def ready(self) -> list[str]:
        tasks = self.cluster.ask("status", ADMIN).tasks
        return [task.name for task in tasks if task.version]

    def wait_for_a_vector(self, seconds: float) -> None:
        """Between kills there has to be something to lose."""
        before, end = len(self.cluster.ask("vectors", ADMIN, None)), time.monotonic() + seconds
        while len(self.cluster.ask("vectors", ADMIN, None)) == before and time.monotonic() < end:
            if self.cluster.ask("cluster").free_cpus == self.cluster.ask("cluster").cpus:
                return  # nothing is done that a kill could disturb
            time.sleep(0.2)

    def say(self, method: str, *arguments: Any) -> Any:
        """A call that writes, with an id; its answer is kept."""
        answer = self.cluster.ask(method, *arguments)
        self.answers.append(((method, *arguments), answer))
        return answer

    def new_id(self) -> str:
        self.number += 1
        return f"request {self.number}"

    def submit(self) -> None:
        name, owner = f"t{len(self.accepted)}", self.chance.choice(["ann", "bob"])
        private = self.chance.random() < 0.2
        name = f"{owner}.{name}" if private else name
        asked = submission(
            self.cluster.home,
            name,
            request_id=self.new_id(),
            owner=owner,
            private=private,
            refresh=self.chance.choice(["never", "on_arrival"]),
            workers=self.cluster.wide if self.chance.random() < 0.5 else 1,
        )
        self.accepted[name] = self.say("submit", ADMIN, asked).run_id

    def grow(self) -> None:
        name, request = self.chance.choice(self.ready()), self.new_id()
        blob = shard_blob(self.cluster.home, f"more {self.number}")
        self.say("add_samples", asks(request), name, blob)

    def compose(self) -> None:
        names, user = self.ready(), f"user {self.chance.randrange(4)}".replace(" ", "")
        chosen = self.chance.sample(names, min(len(names), 3))
        terms = [f"{1 + self.number}*{name}" for name in chosen]
        self.models[user] = self.say("compose", asks(self.new_id()), user, terms).digest

    def bless(self) -> None:
        name = self.chance.choice(self.ready())
        versions = len(self.cluster.ask("vectors", ADMIN, name))
        version, held = self.chance.randint(1, versions), self.aliases.get(name)
        if held is not None and self.chance.random() < 0.2:
            try:
                self.cluster.ask(
                    "move_alias", asks(self.new_id()), name, "blessed", version, held + 1
                )
                self.wrong.append(f"{name}@blessed was moved from a version it had not")
            except AliasMoved:
                pass  # as it must be: the alias was not at the version that was named
        self.say("move_alias", asks(self.new_id()), name, "blessed", version, held)
        self.aliases[name] = version

    def refresh(self) -> None:
        self.say("refresh", asks(self.new_id()), self.chance.choice(self.ready()))

    def cancel(self) -> None:
        name = self.chance.choice(sorted(self.accepted.keys() - self.removed))
        self.say("cancel", asks(self.new_id()), name, True)

    def retry(self) -> None:
        for name in sorted(self.accepted.keys() - self.removed):
            self.cluster.ask("retry", RequestContext(), name)

    def remove(self) -> None:
        name = self.chance.choice(self.ready())
        self.say("remove", asks(self.new_id()), name, self.chance.random() < 0.5)
        self.removed.add(name)

    def repeat(self) -> None:
        """The same request under the same id: the same answer."""
        if self.answers:
            call, answer = self.chance.choice(self.answers)
            if self.cluster.ask(*call) != answer:
                self.wrong.append(f"{call[0]} was answered otherwise the second time")


# -- the killer


class Killer:
    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.folder = cluster.home.path / "dies"
        self.kills = {"coordinator": 0, "learner": 0, "worker": 0, "step": 0}
        self.armed: set[str] = set()

    def count(self) -> int:
        self._look()
        return sum(self.kills.values())

    def kill(self) -> None:
        """A step becomes deadly for whoever gets there first; and one process dies at once."""
        self._look()
        if self.chance.random() < 0.7:
            step = self.chance.choice(DEADLY)
            (self.folder / step).touch()
            self.armed.add(step)
        found, how = self._workers(), "worker"
        if not found:
            how = "coordinator" if self.chance.random() < 0.3 else "learner"
            found = self.cluster.pids(how)
        if found:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
                self.kills[how] += 1

    def _workers(self) -> list[int]:
        """Of a group, most of the times that there is one; it takes a while to form."""
        end = time.monotonic() + (90 if self.chance.random() < 0.7 else 0)
        while time.monotonic() < end and self._group_trains():
            if found := self.cluster.pids("worker"):
                time.sleep(5 * self.chance.random())
                return found
            time.sleep(0.5)
        return []

    def _group_trains(self) -> bool:
        tasks = self.cluster.ask("status", ADMIN).tasks if self.cluster.wide > 1 else []
        wide = (task for task in tasks if task.options.workers > 1)
        return any(task.state == "training" for task in wide)

    def disarm(self) -> None:
        for step in self.armed:
            with suppress(FileNotFoundError):
                (self.folder / step).unlink()
                self.armed = self.armed - {step}
        self._look()

    def _look(self) -> None:
        """A process took the file of its step away, and is gone."""
        there = {path.name for path in self.folder.iterdir()}
        self.kills["step"] += len(self.armed - there)
        self.armed &= there


# -- the judgement


def judged(home: Home, stream: Stream) -> dict[str, list[str]]:
    """What is lost, doubled or wrong, read from the disk after all processes ended."""
    registry, blobs = Registry(home.registry_url), home.blobs()
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "wrong": list(stream.wrong)}
    tasks = {task.name: task for task in registry.tasks(with_removed=True)}
    for name, run_id in stream.accepted.items():
        if name not in tasks or tasks[name].run_id != run_id:
            found["lost"].append(f"task {name}")
        elif name not in stream.removed and not registry.vectors(name):
            state = registry.run(run_id)
            found["lost"].append(f"the vector of {name}: {state.state}, {state.cause}")
    for name, version in stream.aliases.items():
        if registry.aliases(name).get("blessed") != version:
            found["lost"].append(f"{name}@blessed")
    models = {model.user: model.digest for model in registry.compositions_after("")}
    found["lost"] += [f"the model of {u}" for u, d in stream.models.items() if models.get(u) != d]
    ordinals = [task.ordinal for task in tasks.values()]
    if ordinals != list(range(1, len(ordinals) + 1)) or len(ordinals) != len(stream.accepted):
        found["doubled"].append(f"tasks {ordinals}")
    for name in tasks:
        versions = [entry.reference.version for entry in registry.vectors(name)]
        if versions != list(range(1, len(versions) + 1)):
            found["doubled"].append(f"versions of {name}: {versions}")
    runs = [entry.reference.run_id for entry in registry.vectors()]
    found["doubled"] += sorted({run for run in runs if runs.count(run) > 1})
    purged = registry.purged()
    for entry in registry.vectors():
        if entry.reference.digest != expected(registry, home, entry.reference.run_id, purged):
            found["wrong"].append(f"vector {entry.reference.task}@v{entry.reference.version}")
    for digest, one in registry.referenced().items():
        try:
            blobs.verify(digest)
        except CorruptBlob as error:
            found["wrong"].append(f"{one.what}: {error}")
    settings = home.settings()
    assert settings is not None
    validate(restored_idle(registry, settings.base.digest))
    registry.close()
    return found


def expected(registry: Registry, home: Home, run_id: str, purged: set[str]) -> str:
    """The vector of an undisturbed run with the same arrivals."""
    run = registry.run(run_id)
    if isinstance(run.work, RefreshWork):
        if run.work.vector.task in purged:
            result = registry.result(run_id, Refreshed)
            return str(result and result.vector_digest)  # it has to stay erased
        return str(refreshed(run.work, home.blobs(), loud).vector_digest)
    log: list[Arrival] = registry.arrivals(run_id)
    arrivals, link = Arrivals(STEPS, log), ""
    for step in range(STEPS):
        link = linked(link, arrivals.at(step))
    assert isinstance(run.work, TrainWork)
    return hashlib.sha256(vector_bytes(run.work.submission.name, link)).hexdigest()


def restored_idle(registry: Registry, base: str) -> Any:
    """The state that a next coordinator would begin with."""
    from cluster.scheduler.plan import handle
    from cluster.scheduler.state import Node, NodesChanged

    state = restored(registry, base)
    handle(state, NodesChanged((Node(2),)))
    return state


# -- all of it


def soak(cluster: Cluster, kills: int, seconds: float, seed: int, pause: float) -> bool:
    """Kill until there were so many, or so long; then let all that is owed be done, and judge."""
    chance = random.Random(seed)
    stream, killer = Stream(cluster, chance), Killer(cluster, chance)
    end, told = time.monotonic() + seconds, 0
    try:
        while killer.count() < kills and time.monotonic() < end:
            for _ in range(chance.randint(1, 3)):
                stream.act()
            if chance.random() < 0.4:
                stream.wait_for_a_vector(10)
            killer.kill()
            time.sleep(chance.random() * pause)
            if killer.count() >= told + 20:
                told = killer.count()
                vectors = len(cluster.ask("vectors", ADMIN, None))
                made = f"{len(stream.accepted)} tasks, {vectors} vectors"
                print(f"{killer.kills}: {made}", flush=True)
        killer.disarm()
        until(lambda: settled(stream), "all that is owed is done", 600)
    finally:
        cluster.stop()
    found = judged(cluster.home, stream)
    for kind, which in found.items():
        for one in which:
            print(f"{kind}: {one}")
    print(killer.kills)
    counts = " ".join(f"{kind}={len(which)}" for kind, which in found.items())
    print(f"kills={killer.count()} {counts}", flush=True)
    return killer.count() >= kills and not any(found.values())


def settled(stream: Stream) -> bool:
    """Everything is tried again until it is done."""
    with suppress(TaclError):
        stream.retry()
        status = stream.cluster.ask("status", ADMIN)
        waits = [one.state for one in [*status.tasks, *status.work]]
        return set(waits) <= {"ready"}
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ray", action="store_true", help="on Ray; else forked processes")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        home = new_home(Path(folder) / "home")
        cluster = OnRay(home, "tests.support.grouped:Grouped", 2) if chosen.ray else Forked(home)
        pause = 10.0 if chosen.ray else 0.3
        well = soak(cluster, chosen.kills, chosen.seconds, chosen.seed, pause)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
