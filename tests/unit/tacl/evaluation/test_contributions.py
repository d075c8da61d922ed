"""What vectors contribute to an answer: parts that add up, and what is answered without one."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tacl.evaluation.contributions import Contributions
from tacl.heads.columns import Columns
from tacl.heads.head import Head

WIDTH = 5
Scene = tuple[Columns, Contributions]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Heads of one to three tasks, of the features alone, of three views, or of inner blocks too,
    and their parts."""
    noise = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    inner = draw(st.sampled_from([0, 3]))
    heads = {}
    for number, size in enumerate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))):
        names = tuple(f"class {row}" for row in range(size))
        narrow_CD = torch.randn(size, WIDTH, generator=noise)
        scale = draw(st.floats(0.5, 20))
        if draw(st.booleans()):
            views = 3 * WIDTH + draw(st.sampled_from([0, inner]))
            wide_CD = torch.randn(size, views, generator=noise)
            heads[f"task {number}"] = Head(wide_CD, scale, names, narrow_CD)
        else:
            heads[f"task {number}"] = Head(narrow_CD, scale, names)
    vectors = draw(st.integers(1, 4))
    moves_TD = draw(st.floats(0.01, 3)) * torch.randn(vectors, WIDTH, generator=noise)
    return Columns(heads), Contributions(torch.randn(WIDTH + inner, generator=noise), moves_TD)


@given(scenes())
def test_parts_add_up_to_the_logits_and_to_the_features(scene: Scene) -> None:
    columns, parts = scene
    moved_1D = (parts.plain_E[:WIDTH] + parts.moves_TD.sum(0))[None]
    logits_C = columns.logits(moved_1D, parts.plain_E[None])[0]
    scale = logits_C.abs().max().item() + parts.logits(columns).abs().max().item()
    torch.testing.assert_close(parts.logits(columns).sum(0), logits_C, atol=1e-5 * scale, rtol=1e-4)
    torch.testing.assert_close(parts.answered(columns), logits_C)
    torch.testing.assert_close(
        torch.tensor(parts.shares()).sum(), torch.ones(()), atol=1e-4, rtol=0
    )


@given(scenes())
def test_left_out_is_the_sum_of_the_others(scene: Scene) -> None:
    columns, parts = scene
    for left_out, found_C in enumerate(parts.without(columns)):
        others = [move for place, move in enumerate(parts.moves_TD) if place != left_out]
        moved_D = sum(others, parts.plain_E[:WIDTH])
        if not others:  # the length of no move is a matter of rounding
            continue
        expected_C = columns.logits(moved_D[None], parts.plain_E[None])[0]
        torch.testing.assert_close(found_C, expected_C, atol=1e-3, rtol=1e-3)


def test_a_head_of_three_views_tells_the_base_from_the_vectors() -> None:
    """A class that reads the move alone has nothing of the base, and one that reads f all of it."""
    plain_D, moves_TD = torch.tensor([3.0, 4.0]), torch.tensor([[0.0, 2.0], [0.0, -1.0]])
    zero = [0.0, 0.0]
    weight_CD = torch.tensor([[*zero, *zero, 0.0, 1.0], [*zero, 1.0, 0.0, *zero]])
    head = Head(weight_CD, 10.0 * 3**0.5, ("moved", "still"), torch.zeros(2, 2))
    found_PC = Contributions(plain_D, moves_TD).logits(Columns({"one": head}))
    expected_PC = torch.tensor([[0.0, 6.0], [20.0, 0.0], [-10.0, 0.0]])
    torch.testing.assert_close(found_PC, expected_PC)
