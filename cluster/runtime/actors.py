"""The coordinator and its learners as Ray actors.

Learners are detached, and named by the run and attempt that they do first: they keep working while
the coordinator is away, and the next coordinator finds them and collects their results. A
one-worker run reserves its worker's CPUs for the learner itself, which may do another run
afterwards. A learner that starts a group reserves nothing, as its workers do; it is placed beside
the coordinator, so that the loss of another node never takes the leader of a group, and no leader
is sent to a node that is lost but not yet known to be.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError, RayTaskError
from ray.util import list_named_actors

from cluster.coordinator.core import Coordinator
from cluster.domain.base import GPU_PARTS
from cluster.domain.outcomes import Finished, GaveWay, GivesWay, Gone, Lost, Outcome, Raised
from cluster.domain.work import Work
from cluster.runtime.assigned import Assigned
from cluster.runtime.connection import NAMESPACE
from cluster.runtime.gc_tuning import GcTuning
from cluster.runtime.logs import log_to
from cluster.runtime.nodes import held_by, here, release_orphans, with_place_kept
from cluster.runtime.process import LearnerProcess, attempt_of, name_of
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.reuse import RUNS, IdleLearner, is_reusable, late, next_learner
from cluster.scheduler.state import Needs, Node
from cluster.storage.home import Home, Serving
from tacl.errors import HomeInUse, StorageUnavailable, TaclError

PERIOD = 0.2  # seconds between two checks of the runs

LOG = logging.getLogger(__name__)


def actor_of(cls: type, **options: Any) -> Callable[..., Any]:
    """Return a function that makes an actor of a plain class."""
    remote: Any = ray.remote(cls)
    return remote.options(**options).remote


@dataclass(frozen=True)
class Process:
    learner: str  # its name
    needs: Needs
    actor: Any
    answer: ray.ObjectRef


class RayLauncher:
    """`cluster.coordinator.launcher.Launcher` on the Ray cluster of this process."""

    def __init__(
        self, home: str, learner: str, serving: Callable[[], Serving | None], runs: int = RUNS
    ) -> None:
        """`serving`: returns how the HTTP API was started, if it runs. `runs`: of a learner."""
        self._home, self._learner, self._serving, self._runs = home, learner, serving, runs
        self._assigned = Assigned()
        # Two threads use it: the one that pops a learner has it.
        self._idle: dict[str, tuple[IdleLearner, Any]] = {}

    def nodes(self) -> tuple[Node, ...]:
        own = ray.get_runtime_context().get_node_id()
        lasting = held_by(lambda name: attempt_of(name) is None)  # as of Serve: no wait frees it
        held = with_place_kept(lasting, own, self._serving())
        alive = (node for node in ray.nodes() if node["Alive"])
        return tuple(_node(n["Resources"], held.get(n["NodeID"], {})) for n in alive)

    def free(self) -> tuple[Node, ...]:
        release_orphans()
        self._end(late(self._waits(), time.monotonic()))
        alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        left = available_resources_per_node()
        held = held_by(lambda name: name in self._idle) if self._idle else {}
        return tuple(_node(_sum(left.get(node, {}), held.get(node, {}))) for node in alive)

    def start(self, work: Work, needs: Needs) -> Process:
        attempt = Attempt(work.run_id, work.attempt)
        found = self._doing(attempt) or self._waiting(attempt, needs)
        learner, actor = found or (name_of(attempt), self._made(attempt, needs))
        return Process(learner, needs, actor, actor.work.remote(work))

    def _doing(self, attempt: Attempt) -> tuple[str, Any] | None:
        """The learner that was given this attempt after another one; None if there is none."""
        if (learner := self._assigned.learner(attempt)) is None:
            return None
        try:
            return learner, ray.get_actor(learner, namespace=NAMESPACE)
        except ValueError:  # it was lost meanwhile
            return None

    def _waiting(self, attempt: Attempt, needs: Needs) -> tuple[str, Any] | None:
        idle = self._waits()
        chosen, ended = next_learner(idle, needs, list_named_actors() if idle else ())
        self._end(ended)
        if chosen is None or (taken := self._idle.pop(chosen.learner, None)) is None:
            return None
        self._assigned.give(chosen.learner, attempt)
        return chosen.learner, taken[1]

    def _made(self, attempt: Attempt, needs: Needs) -> Any:
        alone = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
        leading = {"num_cpus": 0, "scheduling_strategy": here()}
        options = alone if needs.workers == 1 else leading
        lasting = {"name": name_of(attempt), "lifetime": "detached", "get_if_exists": True}
        make = actor_of(LearnerProcess, namespace=NAMESPACE, **lasting, **options)
        return make(self._home, self._learner, attempt)

    def learners(self) -> list[Attempt]:
        first = {name: attempt for name in list_named_actors() if (attempt := attempt_of(name))}
        return [self._assigned.attempt(name) or attempt for name, attempt in first.items()]

    def end(self, attempt: Attempt) -> None:
        learner = self._assigned.learner(attempt) or name_of(attempt)
        with contextlib.suppress(ValueError):  # it ended by itself
            ray.kill(ray.get_actor(learner, namespace=NAMESPACE))
        self._assigned.forget(learner)

    def ended(self, handles: Mapping[str, Process]) -> list[str]:
        answers = {one.answer: run_id for run_id, one in handles.items()}
        if not answers:
            return []
        ready, _ = ray.wait([*answers], num_returns=len(answers), timeout=0)
        return [answers[one] for one in ready]

    def poll(self, handle: Process) -> Outcome | None:
        ready, _ = ray.wait([handle.answer], timeout=0)
        return _outcome(handle.answer) if ready else None

    def let_go(self, handle: Process) -> None:
        if not is_reusable(handle.needs, self._assigned.runs(handle.learner), self._runs):
            return self.cancel(handle)
        idle = IdleLearner(handle.learner, handle.needs, time.monotonic())
        self._idle[handle.learner] = idle, handle.actor

    def cancel(self, handle: Process) -> None:
        ray.kill(handle.actor)
        self._assigned.forget(handle.learner)

    def _waits(self) -> list[IdleLearner]:
        return [one for one, _ in tuple(self._idle.values())]

    def _end(self, learners: Iterable[str]) -> None:
        """End those of the learners that are idle."""
        for learner in learners:
            if (taken := self._idle.pop(learner, None)) is not None:
                ray.kill(taken[1])
                self._assigned.forget(learner)


def _sum(left: Mapping[str, float], held: Mapping[str, float]) -> dict[str, float]:
    return {name: left.get(name, 0) + held.get(name, 0) for name in ("CPU", "GPU")}


def _node(has: Mapping[str, float], held: Mapping[str, float] = MappingProxyType({})) -> Node:
    """Whole CPUs, and fractions of GPUs; a CPU or GPU that is held in part counts as held."""
    used = (ceil(held.get(name, 0)) for name in ("CPU", "GPU"))
    gpus = int(GPU_PARTS * has.get("GPU", 0)) / GPU_PARTS
    return Node(int(has.get("CPU", 0)), gpus, *used)


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
    """The error without the advice for authors of actors that Ray's messages end with."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])


class TickingCoordinator(Coordinator):
    """The coordinator inside its actor, which checks its learners in a thread of its own."""

    def __init__(self, home: str, learner: str, runs: int) -> None:
        self._where = Home.at(home).where  # as other nodes find it
        log_to(Home.at(home).logs, "coordinator")
        launcher = RayLauncher(self._where, learner, Home.at(home).serving, runs)
        super().__init__(home, launcher)
        self._heap = GcTuning()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def serves(self) -> str:
        """Which home it serves."""
        return self._where

    def _watch(self) -> None:
        while True:
            time.sleep(PERIOD)
            try:
                self.tick()
            except HomeInUse:
                LOG.exception(
                    "another process writes the registry; this coordinator stops for good"
                )
                self.close()
                ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
                return
            except Exception:  # without this thread nothing would check the runs
                LOG.exception("a tick of the coordinator failed; it is retried")
