"""What is said of a task while it is followed, in a file."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from cluster.domain.base import Base
from cluster.domain.status import ClusterStatus, NodeStatus, Resources, TaskState, TaskStatus
from cluster.domain.tasks import Options
from jobs.console.progress import lines

BASE = Base.model_validate({"spec": "hf:x", "digest": "d", "modality": "text", "head_kind": "text"})
ROOM = Resources(nodes=(NodeStatus(cpus=2),), cpus=2, free_cpus=1, gpus=0, free_gpus=0)


def look(state: TaskState, **more: float) -> ClusterStatus:
    fixed = {"run_id": "r", "attempt": 0, "created": 0.0, "owner": "ann", "private": False}
    fixed |= {"name": "news", "ordinal": 1, "modality": "text", "classes": 2, "rows": 800}
    one = TaskStatus.model_validate({**fixed, "options": Options(), "state": state, **more})
    return ClusterStatus(base=BASE, tasks=(one,), work=(), room=ROOM)


def told(*looks: ClusterStatus) -> list[str]:
    written = StringIO()
    watch = lines(Console(file=written))
    for one in looks:
        watch(one)
    return written.getvalue().splitlines()


TRAINED = {"accuracy_after": 0.9}
FITTED = {**TRAINED, "accuracy_fitted": 0.905, "accuracy_frozen": 0.85}


def test_it_is_said_once_what_a_vector_adds_when_its_head_is_fitted() -> None:
    ready = look(TaskState.READY, **TRAINED)
    fitted = look(TaskState.READY, **FITTED)
    assert told(look(TaskState.TRAINING), ready, ready, fitted, ready, fitted) == [
        "news: training",
        "news: ready, accuracy 90.0 %",
        "news: ready, accuracy 90.0 %, with its fitted head +5.5 points over the frozen base",
    ]


def test_who_comes_after_the_training_hears_it_too() -> None:
    said = told(look(TaskState.READY, **TRAINED), look(TaskState.READY, **FITTED))
    assert [line for line in said if "+5.5 points over the frozen base" in line] == said
    assert len(said) == 1


def test_of_what_was_fitted_before_nothing_is_said() -> None:
    fitted = look(TaskState.READY, **FITTED)
    assert told(fitted, fitted) == []


def test_a_vector_can_be_worse_than_the_frozen_base() -> None:
    worse = look(TaskState.READY, **{**FITTED, "accuracy_frozen": 0.915})
    (said,) = told(look(TaskState.READY), worse)
    assert "-1.0 points over the frozen base" in said
