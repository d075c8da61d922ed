"""Which method learns from what and keeps what: plain decisions, no I/O."""

from __future__ import annotations

import pytest

from cluster.domain.compositions import (
    Composition,
    CompositionMethod,
    Merged,
    RecipeTerm,
    Report,
    Target,
)
from cluster.domain.methods import (
    TARGET,
    answering,
    head_blobs,
    is_plain,
    judged,
    model_of,
    recipe_of,
    require_linearized,
    require_possible,
)
from cluster.domain.tasks import VectorRef
from cluster.domain.work import Composed, ComposeWork
from tacl.compose.terms import parse_recipe
from tacl.errors import BadConfig, BadRecipe, MixedRegimes, TaclError
from tests.support.fakes import BASE

REPORT = Report(accuracies={}, judged_on="nothing", seconds=0.1)


def ref(task: str, **changes: object) -> VectorRef:
    found = VectorRef(task=task, version=1, digest=f"{task} 1", blob="b", head_blob="h", run_id="r")
    return found.model_copy(update={"head_blob": f"head of {task}", **changes})


@pytest.mark.parametrize(
    ("method", "terms", "rows", "select"),
    [
        ("sum", "-0.5*a b", [], None),
        ("ties", "-0.5*a b", [], None),
        ("tsv", "-a b", [], None),
        ("iso", "-a b", [], None),
        ("grid", "-0.5*a b", ["fit"], None),
        ("grid", "a -b", [], None),
        ("grid", "-a -b", ["fit"], None),
        ("atlas", "a b", ["fit"], "blockwise:2"),
        ("atlas", "a b", ["adapt"], "random:1"),
        ("atlas", "a b", [], "whole:1"),
        ("atlas", "a -b c", [], "blockwise:1"),
        ("adamerging", "a b", ["adapt"], None),
        ("adamerging", "a b", [], None),
    ],
)
def test_what_is_possible(method: str, terms: str, rows: list[str], select: str | None) -> None:
    require_possible(method, parse_recipe(terms.split()), rows, select)


@pytest.mark.parametrize(
    ("method", "terms", "rows", "select", "error", "words"),
    [
        ("magic", "a", [], None, BadConfig, "there are sum, grid, atlas"),
        ("sum", "a", ["fit"], None, BadConfig, "grid, atlas can"),
        ("ties", "a", ["adapt"], None, BadConfig, "atlas, adamerging can"),
        ("grid", "a", ["adapt"], None, BadConfig, "unlabelled"),
        ("adamerging", "a", ["fit"], None, BadConfig, "labelled"),
        ("atlas", "a", ["fit", "adapt"], None, BadConfig, "not both"),
        ("ties", "a", [], "blockwise:1", BadConfig, "atlas"),
        ("atlas", "a", [], "blockwise:2", BadRecipe, "1 vectors"),
        ("atlas", "a b", [], "layers:2", BadRecipe, "blockwise:B"),
        ("atlas", "a -0.5*b", [], None, BadRecipe, r"cannot keep \[-0.5\].*-NAME"),
        ("atlas", "-a -b", [], None, BadRecipe, "this recipe adds none"),
        ("grid", "-0.5*a", [], None, BadRecipe, "this recipe adds none"),
        ("grid", "a@v1 -0.5*a@v2", [], None, BadRecipe, "learn or unlearn a, not both"),
        ("atlas", "a@v1 b -a@v2", [], None, BadRecipe, "learn or unlearn a, not both"),
        ("atlas", "a -b", ["fit"], None, BadRecipe, r"cannot keep \[-1.0\]"),
        ("adamerging", "a -b", [], None, BadRecipe, r"cannot keep \[-1.0\]"),
        ("adamerging", "0.5*a", [], None, BadRecipe, r"cannot keep \[0.5\]"),
        ("atlas", f"a {TARGET}", ["fit"], None, BadRecipe, TARGET),
    ],
)
def test_what_is_refused(
    method: str,
    terms: str,
    rows: list[str],
    select: str | None,
    error: type[TaclError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        require_possible(method, parse_recipe(terms.split()), rows, select)


def test_ordinary_vectors_are_refused_with_what_to_do() -> None:
    require_linearized("ties", [ref("a")])
    with pytest.raises(MixedRegimes, match="b@v1: ordinary vectors, and ties.*tacl import"):
        require_linearized("ties", [ref("a"), ref("b", regime="ordinary")])


def test_the_same_content_is_the_same_model_whoever_made_it() -> None:
    plain = (RecipeTerm(coefficient=1, vector=ref("a")), RecipeTerm(coefficient=2, vector=ref("b")))
    learned = (plain[0].model_copy(update={"by_block": {"x": 0.5}}), plain[1])

    def work(method: str, user: str = "alice") -> ComposeWork:
        making = CompositionMethod(method=method)  # type: ignore[arg-type]
        parts = {"run_id": "r", "base": BASE, "user": user, "terms": plain, "making": making}
        return ComposeWork(**parts, tasks=(), probes=(), attempt=1)  # type: ignore[arg-type]

    def found(terms: tuple[RecipeTerm, ...], **more: object) -> Composed:
        return Composed(terms=terms, report=REPORT, **more)  # type: ignore[arg-type]

    one = model_of(work("grid"), found(plain))
    assert model_of(work("grid", "bob"), found(plain[::-1])).digest == one.digest
    merged = Merged(digest="m", blob="n")
    target = Target(name=TARGET, classes=("x", "y"), head_blob="own")
    others = [
        model_of(work("ties"), found(plain)),
        model_of(work("grid"), found(learned)),
        model_of(work("grid"), found(plain, merged=merged)),
        model_of(work("grid"), found(plain, target=target)),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 5
    assert [is_plain(model) for model in (one, *others)] == [True, True, False, False, True]
    assert recipe_of(learned) == {"a 1": {"x": 0.5}, "b 1": 2.0}
    assert head_blobs(one) == {"a": "head of a", "b": "head of b"}
    assert next(iter(head_blobs(others[-1]).items())) == (TARGET, "own")
    assert answering(one) == ("a", "b")
    assert answering(others[-1]) == (TARGET,)


@pytest.mark.parametrize(
    ("terms", "tasks"),
    [
        ("a 0.1*b", "a b"),
        ("-0.5*a b", "b"),
        ("a@v1 -0.4*a@v2", "a"),
        ("a@v1 -a@v2 b", "b"),
        ("-a", ""),
    ],
)
def test_what_is_subtracted_is_no_answer(terms: str, tasks: str) -> None:
    pinned = [
        RecipeTerm(coefficient=term.coefficient, vector=ref(term.name))
        for term in parse_recipe(terms.split())
    ]
    model = Composition(digest="d", user="alice", terms=tuple(pinned))
    assert " ".join(answering(model)) == tasks
    of_the_recipe = dict.fromkeys(term.vector.task for term in pinned)
    assert [*judged(model, of_the_recipe)] == (tasks.split() or [*of_the_recipe])
