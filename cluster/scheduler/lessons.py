"""What heads are fitted on: the tasks that may teach, with their champions.

Kept for each owner of private tasks, and for all others together, in one number, the sum of a hash
of each: a champion that moves changes it in no time, however many tasks there are.
"""

from __future__ import annotations

from hashlib import sha256

from cluster.scheduler.state import Champions, State

MODULUS = 2**256


def numbers(state: State) -> dict[str, int]:
    """By owner, "" for the tasks that nobody keeps private; 0 where there is none, or none any
    more."""
    if state.lessons is None:
        state.lessons = {}
        for task, vector in state.champions.items():
            _add(state, task, vector.digest, 1)
    return state.lessons


def moves(state: State, task: str, vector: str | None) -> None:
    """Before the task's champion becomes another, by its digest, or leaves: None."""
    if state.lessons is not None:
        if task in state.champions:
            _add(state, task, state.champions[task].digest, -1)
        if vector is not None:
            _add(state, task, vector, 1)
    state.fits = None


def champions(state: State, owner: str) -> Champions:
    """What the fit for an owner is of."""
    tasks, owners = state.tasks, state.owners
    return tuple(
        (task, vector.digest)
        for task, vector in state.champions.items()
        if tasks[task].teaches and owners.get(task, owner) == owner
    )


def _add(state: State, task: str, vector: str, sign: int) -> None:
    if state.tasks[task].teaches:
        assert state.lessons is not None
        owner, part = state.owners.get(task, ""), sha256(f"{task} {vector}".encode()).digest()
        number = state.lessons.get(owner, 0) + sign * int.from_bytes(part)
        state.lessons[owner] = number % MODULUS
