"""Which heads are fitted together: those of the tasks that may teach, with their champions.

Each owner of private tasks has a set, and all other tasks together: the champions, and one number,
the sum of a hash of each. When a champion changes, the set is updated in constant time, however
many tasks there are.
"""

from __future__ import annotations

from hashlib import sha256

from cluster.scheduler.state import Champions, ChampionSet, State

MODULUS = 2**256


def champion_sets(state: State) -> dict[str, ChampionSet]:
    """The sets by owner of private tasks, "" for open tasks."""
    if state.champion_sets is None:
        state.champion_sets = {}
        for task, vector in state.champions.items():
            _put(state.champion_sets, state, task, vector.digest)
    return state.champion_sets


def before_champion_change(state: State, task: str, vector: str | None) -> None:
    """Call before the champion of a task changes to `vector`, a digest, or leaves (None)."""
    if state.champion_sets is not None:
        _put(state.champion_sets, state, task, vector)
    state.fits = None


def champions(state: State, owner: str) -> Champions:
    """The champions in the fit of an owner, those of open tasks included."""
    of, nobody = champion_sets(state), ChampionSet()
    return of.get("", nobody).champions | of.get(owner, nobody).champions


def _put(of: dict[str, ChampionSet], state: State, task: str, vector: str | None) -> None:
    if task not in state.tasks or not state.tasks[task].teaches:
        return
    chosen = of.setdefault(state.owners.get(task, ""), ChampionSet())
    if (old := chosen.champions.pop(task, None)) is not None:
        chosen.number = (chosen.number - _number(task, old)) % MODULUS
    if vector is not None:
        chosen.champions[task] = vector
        chosen.number = (chosen.number + _number(task, vector)) % MODULUS


def _number(task: str, vector: str) -> int:
    return int.from_bytes(sha256(f"{task} {vector}".encode()).digest())
