"""Calls about users: their models, and their tokens."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.api.access import hashed
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Composition, CompositionMethod
from cluster.domain.work import ClassReport, Evaluated, TaskAccuracy
from cluster.scheduler.state import Ended
from jobs.benchmarks.calls import Call, Turns, each

MERGED = CompositionMethod(method="ties")
DIGITS = 16  # of the sha256 of a token, which identify it


def models(asking: Turns, call: Coordinator) -> Iterator[Call]:
    users, whose, terms = asking.users, asking.whose, asking.terms
    make = each(call.start_composition, asking.new("make"), users, terms, how=MERGED)
    yield Call("user", "composition", each(call.composition, whose, users))
    yield Call("user", "models that are one's own", each(call.users, whose, users))
    yield Call("user", "compose", each(call.compose, asking.new("compose"), users, terms))
    yield Call("user", "update", each(call.update_composition, asking.new("update"), users))
    yield Call("user", "evaluate", each(call.evaluate, asking.new("evaluate"), users))
    evaluated = _evaluated(asking, call)
    yield Call("user", "evaluation", lambda _: call.evaluation(whose[0], evaluated))
    yield Call("user", "make a composition", make)
    made = call.start_composition(RequestContext(), users[0], [f"+{asking.seen[0]}"], MERGED).run_id
    asks = whose[0], users[0], made
    yield Call("user", "composition in the making", lambda _: call.composition_run(*asks))
    yield Call("user", "cancel", each(call.cancel_compositions, asking.new("cancel"), users))
    yield Call("user", "accuracies", each(call.accuracy_history, whose, users))


def _evaluated(asking: Turns, call: Coordinator) -> str:
    """A finished evaluation of the first user's model; returns the run's id."""
    run_id = call.evaluate(RequestContext(), asking.users[0], False, True).run_id
    call._registry.finish(run_id, _found(call.composition(asking.whose[0], asking.users[0])))
    call._execution.apply_events(Ended(run_id))
    return run_id


def _found(model: Composition) -> Evaluated:
    """A result with the form and the size of a learner's."""
    tasks = [term.vector.task for term in model.terms]
    unnamed = ["unknown", "frozen_known", "frozen_unknown"]
    kinds = ["zero_shot", "individual", "composed", "rows", *unnamed]
    row = TaskAccuracy(**dict.fromkeys(kinds, 0.912345678))
    names = tuple(f"class {number}" for number in range(10))
    counts = tuple(tuple(100 for _ in names) for _ in names)
    shares = tuple(0.912345678 for _ in names)
    by_class = ClassReport(classes=names, accuracy=shares, f1=shares, confusion=counts)
    return Evaluated(
        per_task=dict.fromkeys(tasks, row),
        by_class=dict.fromkeys(tasks, by_class),
        without={task: dict.fromkeys(tasks, 0.812345678) for task in tasks},
        absolute=0.912345678,
        normalized=0.98,
        class_incremental=0.8,
        seconds=12.5,
    )


def accounts(asking: Turns, call: Coordinator) -> Iterator[Call]:
    users, names, admin = asking.users, asking.names, asking.admin
    hashes, others = [hashed(one) for one in names], [hashed(f"other of {one}") for one in names]
    tokens, roles = [one[:DIGITS] for one in hashes], ["user"] * len(names)
    issue = each(call.issue_token, admin("issue"), names, roles, hashes)
    yield Call("user", "whose token", lambda row: call.holder(hashed(users[row])))
    yield Call("user", "usage", lambda row: call.usage(users[row]))
    yield Call("admin", "usage, a page", lambda row: call.usage(None, users[row]))
    yield Call("admin", "tokens of a user", lambda row: call.tokens(users[row]))
    yield Call("admin", "tokens, a page", lambda row: call.tokens(None, users[row]))
    yield Call("admin", "issue a token", issue)
    yield Call("admin", "rotate a token", each(call.rotate_token, admin("rotate"), tokens, others))
    yield Call("admin", "revoke tokens", each(call.revoke_tokens, admin("revoke"), names))
