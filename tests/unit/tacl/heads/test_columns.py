"""All columns of a model: probabilities of tasks and classes, against a loop over the columns."""

from __future__ import annotations

import math
import random
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tacl.heads import columns as module
from tacl.heads.columns import Columns
from tacl.heads.head import Head

WIDTH, ROWS = 5, 4
Scene = tuple[Columns, Tensor]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Heads of one to four tasks, each of its own scale, and features."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    noise = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    heads = {}
    for number, size in enumerate(sizes):
        rows = torch.nn.functional.normalize(torch.randn(size, WIDTH, generator=noise), dim=-1)
        names = tuple(f"class {row}" for row in range(size))  # the same in every task
        heads[f"task {number}"] = Head(rows, draw(st.floats(0.5, 20)), names)
    return Columns(heads), torch.randn(ROWS, WIDTH, generator=noise)


@given(scenes())
def test_the_joint_probability_is_one_softmax_over_all_columns(scene: Scene) -> None:
    columns, features_BD = scene
    joint = columns.joint(features_BD)
    for row in range(ROWS):
        found = {t: head.logits(features_BD)[row].tolist() for t, head in columns.heads.items()}
        total = sum(math.exp(logit) for logit in chain(*found.values()))
        for task, logits in found.items():
            assert joint[task][row].tolist() == pytest.approx(
                [math.exp(logit) / total for logit in logits], rel=1e-3, abs=1e-6
            )


@given(scenes())
def test_marginals(scene: Scene) -> None:
    """P(task, class | x) sums to 1, and is P(class | x, task) times the sum of the task's own."""
    columns, features_BD = scene
    joint, within = columns.joint(features_BD), columns.within(features_BD)
    task_BT = torch.stack([joint[task].sum(-1) for task in columns.heads], -1)
    torch.testing.assert_close(task_BT.sum(-1), torch.ones(ROWS))
    for place, task in enumerate(columns.heads):
        torch.testing.assert_close(joint[task], task_BT[:, [place]] * within[task])
        torch.testing.assert_close(within[task].sum(-1), torch.ones(ROWS))


@given(scenes())
def test_of_one_task_the_joint_answer_is_that_within_it(scene: Scene) -> None:
    columns, features_BD = scene
    for task, head in columns.heads.items():
        (alone_BC,) = Columns({task: head}).joint(features_BD).values()
        assert torch.equal(alone_BC, columns.within(features_BD)[task])


@given(scenes(), st.randoms())
def test_the_order_of_tasks_does_not_matter(scene: Scene, chance: random.Random) -> None:
    columns, features_BD = scene
    tasks = chance.sample(list(columns.heads), len(columns.heads))
    other = Columns({task: columns.heads[task] for task in tasks})
    assert list(other.classes) == tasks
    joint = columns.joint(features_BD)
    for task, found_BC in other.joint(features_BD).items():
        torch.testing.assert_close(found_BC, joint[task])


def test_what_heads_share_is_made_once_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_BE, moved_BD = torch.rand(ROWS, WIDTH + 4), torch.rand(ROWS, WIDTH)
    narrow_CD, names = torch.rand(2, WIDTH), ("a", "b")
    heads = {
        "wide": Head(torch.rand(2, 3 * WIDTH + 4), 3.0, names, narrow_CD),
        "without inner blocks": Head(torch.rand(2, 3 * WIDTH), 2.0, names, narrow_CD),
        "as wide": Head(torch.rand(2, 3 * WIDTH + 4), 1.0, names, narrow_CD),
        "of the training": Head(narrow_CD, 4.0, names),
    }
    calls, beside, lengths, normalize = [], module.beside, [], module.normalize
    monkeypatch.setattr(module, "beside", lambda *rows: calls.append(rows) or beside(*rows))
    monkeypatch.setattr(
        module, "normalize", lambda rows, dim: lengths.append(rows) or normalize(rows, dim=dim)
    )
    found = Columns(heads).logits(moved_BD, plain_BE)
    alone = [head.logits(head.views(plain_BE, moved_BD)) for head in heads.values()]
    assert torch.equal(found, torch.cat(alone, -1))
    assert len(calls) == 1
    assert len(lengths) == 3  # of the four heads two see the same
