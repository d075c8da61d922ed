"""Which predictor is the keeper of a model, and whom its questions go to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from cluster.api.service import Question
from cluster.domain.compositions import Composition, Merged, RecipeTerm
from cluster.domain.tasks import VectorRef
from cluster.serving.router import RUNNING, AffinityRouter
from cluster.serving.routing import BUSY, keeper, ranked

NAMES = ("p1", "p2", "p3", "p4")


def model(user: str, *vectors: str) -> Composition:
    given = {"version": 1, "blob": "", "head_blob": "", "run_id": ""}
    refs = [VectorRef(task=name, digest=name, **given) for name in vectors]
    terms = tuple(RecipeTerm(coefficient=1.0, vector=ref) for ref in refs)
    return Composition(digest=f"{user} {vectors}", user=user, terms=terms)


MODELS = [
    model(f"u{n}", *random.Random(n).sample([f"v{k}" for k in range(60)], 4)) for n in range(400)
]


def test_the_keeper_of_most_vectors_keeps_the_model() -> None:
    alone = {v: keeper(model("ann", v), NAMES) for v in (f"v{k}" for k in range(60))}
    assert set(alone.values()) == set(NAMES)
    for one in MODELS:
        votes = Counter(alone[term.vector.digest] for term in one.terms)
        assert votes[keeper(one, NAMES)] == max(votes.values())
    same = [name for name, where in alone.items() if where == "p1"][:2]
    assert keeper(model("bob", *same, *list(alone)[:1]), NAMES) == "p1"


def test_a_merged_model_is_one_vector() -> None:
    merged = [
        one.model_copy(update={"merged": Merged(digest="m", blob="b")}) for one in MODELS[:20]
    ]
    assert len({keeper(one, NAMES) for one in merged}) == 1


def test_every_predictor_keeps_its_part() -> None:
    count = Counter(keeper(one, NAMES) for one in MODELS)
    assert all(0.5 < len(NAMES) * count[name] / len(MODELS) < 1.5 for name in NAMES)


def test_a_predictor_that_goes_moves_little_else() -> None:
    before = {one.digest: keeper(one, NAMES) for one in MODELS}
    after = {one.digest: keeper(one, NAMES[:3]) for one in MODELS}
    stayed = [where == after[name] for name, where in before.items() if where != "p4"]
    assert sum(stayed) > 0.6 * len(stayed)  # some of their vectors come to other keepers
    for one in (model("ann", f"v{k}") for k in range(60)):  # and of vectors only those
        assert keeper(one, NAMES) in ("p4", keeper(one, NAMES[:3]))
    assert keeper(MODELS[0], ()) == ""


@given(
    ongoing=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5), min_size=1),
    wanted=st.sampled_from((*NAMES, "")),
    seed=st.integers(0, 100),
)
def test_a_busy_keeper_is_not_waited_for(ongoing: dict[str, int], wanted: str, seed: int) -> None:
    ranks = ranked(wanted, ongoing, random.Random(seed).sample)
    assert ([wanted] in ranks[:-1]) == (wanted in ongoing and ongoing[wanted] < BUSY)
    assert len(set(ranks[-1])) == len(ranks[-1]) == min(2, len(ongoing))
    assert {name for rank in ranks for name in rank} <= set(ongoing)


def test_serve_is_told_the_keeper_and_the_ingress_who_runs() -> None:
    replicas = [SimpleNamespace(replica_id=SimpleNamespace(unique_id=name)) for name in NAMES]
    lengths = {id(one.replica_id): 0 for one in replicas}
    router = cast(Any, AffinityRouter.__new__(AffinityRouter))
    router._replica_queue_len_cache = SimpleNamespace(get=lambda one: lengths[id(one)])

    def chosen(one: Composition) -> list[list[str]]:
        context = SimpleNamespace(should_backoff=False)
        pending = SimpleNamespace(args=[[Question(one, ["x"])]], routing_context=context)
        ranks = asyncio.run(router.choose_replicas(replicas, pending))
        assert context.should_backoff  # else Serve would ask again without a pause
        return [[replica.replica_id.unique_id for replica in rank] for rank in ranks]

    for one in MODELS[:20]:
        assert chosen(one)[0] == [keeper(one, NAMES)]
    lengths = dict.fromkeys(lengths, BUSY)
    (others,) = chosen(MODELS[0])
    assert len(set(others)) == 2
    RUNNING.set(one.replica_id for one in reversed(replicas))
    assert RUNNING.names == NAMES
    RUNNING.set([])
