"""The actors that a head process starts: the coordinator, and for a home that is not yet founded a
process that loads its base."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayTaskError

from cluster.domain.base import Base
from cluster.runtime.actors import actor_of
from cluster.runtime.connection import COORDINATOR, NAMESPACE, unwrapped
from cluster.runtime.nodes import here
from cluster.runtime.process import LearnerProcess
from cluster.runtime.watched import WatchedCoordinator
from tacl.training.config import Precision

CALLS = 4  # at once: long ones hold up nobody, others take turns (`WatchedCoordinator`)


def start_coordinator(home: str, learner: str, pinned: bool, runs: int) -> Any:
    """Start the detached, named actor, which is restarted for ever; it answers once this returns.
    If `pinned`, it stays on the node of this process. `runs`: of a learner before it ends.

    Its arguments are short strings: large ones are lost at a restart (ray #53727). Its methods are
    idempotent by their ids, so Ray may repeat a call that a restart interrupted.
    """
    lasting = {"lifetime": "detached", "max_restarts": -1, "max_task_retries": -1}
    place = {"scheduling_strategy": here()} if pinned else {}
    names = {"name": COORDINATOR, "namespace": NAMESPACE}
    room = {"num_cpus": 0, "max_concurrency": CALLS}
    make = actor_of(WatchedCoordinator, **names, **room, **lasting, **place)
    actor = make(home, learner, runs)
    ray.get(actor.cluster.remote())
    return actor


def describe_base(home: str, spec: str, learner: str) -> tuple[Base, Precision]:
    """Load the base model in a process that then ends; returns it and the number format in which it
    trains faster. Raises BaseNotFound, BadBase."""
    actor = actor_of(LearnerProcess, num_cpus=0, scheduling_strategy=here())(home, learner)
    try:
        return ray.get(actor.describe_base.remote(spec))
    except RayTaskError as error:
        raise unwrapped(error) from None
    finally:
        ray.kill(actor)
