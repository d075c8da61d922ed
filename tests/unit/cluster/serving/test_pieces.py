"""A question of many rows goes in pieces, and its answer is one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.api.service import Answered, Question
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.tasks import VectorRef
from cluster.serving.pieces import MOST, ROWS, SECONDS, fitting, joined, pieces


def model(vectors: int) -> Composition:
    terms = (
        RecipeTerm(
            coefficient=1.0,
            vector=VectorRef(
                task=f"t{n}", version=1, digest=str(n), blob="", head_blob="", run_id=""
            ),
        )
        for n in range(vectors)
    )
    return Composition(digest="d", user="ann", terms=tuple(terms))


def answered(question: Question) -> Answered:
    names = [str(raw) for raw in question.inputs]
    return Answered(
        answers=[{"t": [(name, 1.0)]} for name in names],
        base=[{"base": [(name, 1.0)]} for name in names] if question.beside_base else None,
        features=[[float(name)] for name in names] if question.features else None,
    )


@given(
    rows=st.integers(1, 70),
    most=st.integers(ROWS, MOST),
    vectors=st.integers(1, 40),
    explain=st.booleans(),
    beside_base=st.booleans(),
    features=st.booleans(),
)
def test_pieces_are_small_and_their_answers_are_the_answer(
    rows: int, most: int, vectors: int, explain: bool, beside_base: bool, features: bool
) -> None:
    inputs = [str(row) for row in range(rows)]
    question = Question(
        model(vectors), inputs, beside_base=beside_base, features=features, explain=explain
    )
    parts = pieces(question, most)
    assert all(part.rows <= most or len(part.inputs) == 1 for part in parts)
    assert [raw for part in parts for raw in part.inputs] == inputs
    assert joined([answered(part) for part in parts]) == answered(question)
    assert joined([replace(answered(part), more_classes=3) for part in parts]).more_classes == 3
    if not explain:
        assert len(parts) == -(-rows // most)


@given(rows=st.integers(1, MOST), row=st.floats(1e-6, 10))
def test_a_piece_takes_no_longer_than_others_may_wait(rows: int, row: float) -> None:
    """Of a fast encoder it is of many rows, of a slow one of few, but never of fewer than ROWS."""
    found = fitting(rows, rows * row)
    assert ROWS <= found <= MOST
    assert found == ROWS or found * row <= SECONDS * 1.0001
    assert found == MOST or (found + 1) * row > SECONDS * 0.9999
