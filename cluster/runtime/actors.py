"""The coordinator and its learners as Ray actors.

Learners are detached, and named by run and attempt: they work on while the coordinator is away, and
the next one finds them and hears what they have found. A one-worker run reserves its worker's CPUs
for the learner itself. A learner that starts a group reserves nothing, its workers do; it starts
beside the coordinator, so that the loss of another node never takes the leader of a group, nor is
one sent to a node not yet known to be lost.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError, RayTaskError
from ray.util import list_named_actors

from cluster.coordinator.core import Coordinator
from cluster.domain.base import Base
from cluster.domain.outcomes import Finished, GaveWay, GivesWay, Gone, Lost, Outcome, Raised
from cluster.domain.work import Work
from cluster.runtime.connection import COORDINATOR, NAMESPACE, unwrapped
from cluster.runtime.logs import log_to
from cluster.runtime.nodes import held_by_lasting, here, release_orphans, with_place_kept
from cluster.runtime.process import LearnerProcess, attempt_of, name_of
from cluster.runtime.watched import WatchedCoordinator
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node
from cluster.storage.home import Home, Serving
from tacl.errors import HomeInUse, StorageUnavailable, TaclError

LEARNER = "cluster.learner.learner:Learner"
PERIOD = 0.2  # seconds between two looks at what runs
RETRY = 1.0  # seconds before a recovery that failed is tried again

LOG = logging.getLogger(__name__)


def _remote(cls: type, **options: Any) -> Callable[..., Any]:
    """Make an actor of a plain class."""
    remote: Any = ray.remote(cls)
    return remote.options(**options).remote


@dataclass(frozen=True)
class Process:
    actor: Any
    answer: ray.ObjectRef


class RayLauncher:
    """`cluster.coordinator.launcher.Launcher` on the Ray cluster of this process."""

    def __init__(self, home: str, learner: str, serving: Callable[[], Serving | None]) -> None:
        """`serving`: what the HTTP API was started with, while it is."""
        self._home, self._learner, self._serving = home, learner, serving

    def nodes(self) -> tuple[Node, ...]:
        own = ray.get_runtime_context().get_node_id()
        held = with_place_kept(held_by_lasting(), own, self._serving())
        alive = (node for node in ray.nodes() if node["Alive"])
        return tuple(_node(n["Resources"], held.get(n["NodeID"], {})) for n in alive)

    def free(self) -> tuple[Node, ...]:
        release_orphans()
        alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        left = available_resources_per_node()
        return tuple(_node(left.get(node, {})) for node in alive)

    def start(self, work: Work, needs: Needs) -> Process:
        alone = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
        leading = {"num_cpus": 0, "scheduling_strategy": here()}
        options = alone if needs.workers == 1 else leading
        attempt = Attempt(work.run_id, work.attempt)
        lasting = {"name": name_of(attempt), "lifetime": "detached", "get_if_exists": True}
        make = _remote(LearnerProcess, namespace=NAMESPACE, **lasting, **options)
        actor = make(self._home, self._learner, attempt)
        return Process(actor, actor.work.remote(work))

    def learners(self) -> list[Attempt]:
        return [found for name in list_named_actors() if (found := attempt_of(name))]

    def end(self, attempt: Attempt) -> None:
        with contextlib.suppress(ValueError):  # it ended by itself
            ray.kill(ray.get_actor(name_of(attempt), namespace=NAMESPACE))

    def poll(self, handle: Process) -> Outcome | None:
        ready, _ = ray.wait([handle.answer], timeout=0)
        return _outcome(handle.answer) if ready else None

    def cancel(self, handle: Process) -> None:
        ray.kill(handle.actor)


def _node(has: Mapping[str, float], held: Mapping[str, float] = MappingProxyType({})) -> Node:
    """Whole CPUs and GPUs; what is held in part is held."""
    used = (ceil(held.get(name, 0)) for name in ("CPU", "GPU"))
    return Node(int(has.get("CPU", 0)), int(has.get("GPU", 0)), *used)


def _outcome(answer: ray.ObjectRef) -> Outcome:
    try:
        return Finished(ray.get(answer))
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Lost | RayError | StorageUnavailable):
            return Gone(str(cause).strip())
        if isinstance(cause, GivesWay):
            return GaveWay()
        kind = "" if isinstance(cause, TaclError) else f"{type(cause).__name__}: "
        return Raised(f"{kind}{cause}", trace=str(error))
    except RayError as error:  # the actor or its node is gone
        return Gone(f"the learner's process was lost: {_first_lines(error)}")


def _first_lines(error: RayError) -> str:
    """Ray's messages go on with advice for those who write actors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])


class TickingCoordinator(Coordinator):
    """The coordinator inside its actor: it looks after its learners by itself.

    A recovery that fails, as on a full disk, ends the process, so that Ray tries it again; an
    exception would end the actor for ever.
    """

    def __init__(self, home: str, learner: str) -> None:
        self._where = Home.at(home).where  # as other nodes find it
        log_to(Home.at(home).logs, "coordinator")
        try:
            super().__init__(home, RayLauncher(self._where, learner, Home.at(home).serving))
        except Exception:
            LOG.exception("the coordinator cannot start; it is tried again")
            time.sleep(RETRY)
            os._exit(1)
        gc.collect()
        gc.freeze()  # what a large home needs stays: looking through it takes a third of a second
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def serves(self) -> str:
        """Which home."""
        return self._where

    def _watch(self) -> None:
        try:
            while True:
                time.sleep(PERIOD)
                self.tick()
        except HomeInUse:
            LOG.exception("this cluster ends: Ray is not to start its coordinator again")
            self.close()
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def start_coordinator(home: str, learner: str = LEARNER, pinned: bool = True) -> Any:
    """The detached, named actor that is restarted for ever; it answers when this returns. It stays
    on the node of this process when `pinned`.

    Its arguments are short strings: large ones are lost at a restart (ray #53727). Its methods are
    idempotent by the ids they are given, so Ray may repeat a call that a restart interrupted.
    """
    lasting = {"lifetime": "detached", "max_restarts": -1, "max_task_retries": -1}
    place = {"scheduling_strategy": here()} if pinned else {}
    names = {"name": COORDINATOR, "namespace": NAMESPACE, "num_cpus": 0}
    make = _remote(WatchedCoordinator, **names, **lasting, **place)
    actor = make(home, learner)
    ray.get(actor.cluster.remote())
    return actor


def describe_base(home: str, spec: str, learner: str = LEARNER) -> Base:
    """Load the encoder once, in a process that then ends. Raises BaseNotFound, BadBase."""
    actor = _remote(LearnerProcess, num_cpus=0, scheduling_strategy=here())(home, learner)
    try:
        return ray.get(actor.describe_base.remote(spec))
    except RayTaskError as error:
        raise unwrapped(error) from None
    finally:
        ray.kill(actor)
