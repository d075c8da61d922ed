"""Heads: the logits of every table, the texts of class names, prototypes, unions, storage."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from tacl.backbone import Backbone
from tacl.errors import BadConfig, BaseMismatch, EmptySplit, LabelOutOfRange
from tacl.heads.head import Head, prototype_head, readable_class, text_head, union


def speaks(table: dict[str, list[float]]) -> Backbone:
    """A text tower that knows a few sentences."""

    def encode_texts(texts: Sequence[str]) -> Tensor:
        return torch.tensor([table[text] for text in texts])

    fake: Any = SimpleNamespace(
        encode_texts=encode_texts, logit_scale=20.0, templates=("about {}.",)
    )
    return cast(Backbone, fake)


def test_logits_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(3, 5, generator=generator), dim=-1)
    head = Head(rows, 7.0, ("a", "b", "c"))
    features = torch.randn(4, 5, generator=generator)
    logits = head.logits(features)
    for b in range(4):
        for c in range(3):
            length = sum(v * v for v in features[b].tolist()) ** 0.5
            product = sum(
                x * y for x, y in zip(features[b].tolist(), rows[c].tolist(), strict=True)
            )
            assert logits[b, c].item() == pytest.approx(7.0 * product / length, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("annual_crop", "annual crop"),
        ("AnnualCrop", "Annual Crop"),
        ("PlayMusic_now", "Play Music now"),
        ("HTMLPage", "HTML Page"),
        ("__x__y ", "x y"),
        ("Sci/Tech", "Sci/Tech"),
        ("T-shirt", "T-shirt"),
    ],
)
def test_readable_class(name: str, text: str) -> None:
    assert readable_class(name) == text


def test_text_head_averages_unit_features_over_templates() -> None:
    table = {
        "a big dog": [10.0, 0.0, 0.0],
        "one big dog": [0.0, 0.5, 0.0],
        "a cat": [0.0, 0.0, 2.0],
        "one cat": [0.0, 0.0, 9.0],
    }
    head = text_head(speaks(table), ["big_dog", "cat"], ["a {}", "one {}"])
    half = 0.5**0.5
    torch.testing.assert_close(head.weight_CD, torch.tensor([[half, half, 0.0], [0.0, 0.0, 1.0]]))
    assert (head.scale, head.classes) == (20.0, ("big_dog", "cat"))


def test_text_head_uses_the_encoders_templates_when_none_are_given() -> None:
    head = text_head(speaks({"about x.": [3.0, 4.0], "about y.": [1.0, 0.0]}), ["x", "y"])
    torch.testing.assert_close(head.weight_CD, torch.tensor([[0.6, 0.8], [1.0, 0.0]]))


def test_a_template_without_a_place_is_refused() -> None:
    with pytest.raises(BadConfig, match="a photo"):
        text_head(speaks({}), ["x"], ["a photo"])


def test_prototypes_are_unit_class_means() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 6.0], [0.0, -5.0]])
    head = prototype_head(features, torch.tensor([0, 0, 1]), ["a", "b"])
    mean = torch.tensor([3.0, 3.0])
    torch.testing.assert_close(head.weight_CD[0], mean / mean.norm())
    torch.testing.assert_close(head.weight_CD[1], torch.tensor([0.0, -1.0]))
    assert head.scale == 16.0


def test_prototypes_need_rows_of_every_class_and_labels_in_range() -> None:
    features = torch.ones(2, 2)
    with pytest.raises(EmptySplit, match="'b'"):
        prototype_head(features, torch.tensor([0, 0]), ["a", "b"])
    for wrong in (2, -1):
        with pytest.raises(LabelOutOfRange, match="2 classes"):
            prototype_head(features, torch.tensor([0, wrong]), ["a", "b"])


def test_union_keeps_rows_in_order_and_the_logits_of_each_scale() -> None:
    one, two = Head(torch.eye(2), 5.0, ("a", "b")), Head(-torch.eye(2)[:1], 5.0, ("a",))
    both = union([one, two])
    assert both.classes == ("a", "b", "a")
    features = torch.tensor([[1.0, 2.0]])
    expected = torch.cat([one.logits(features), two.logits(features)], dim=1)
    torch.testing.assert_close(both.logits(features), expected)
    three = Head(torch.eye(2), 6.0, ("c", "d"))
    expected = torch.cat([one.logits(features), three.logits(features)], dim=1)
    torch.testing.assert_close(union([one, three]).logits(features), expected)


def test_a_head_survives_a_file_of_tensors() -> None:
    head = Head(torch.eye(3)[:2], 4.6052, ("caf\u00e9 au lait", "\u732b"))
    back = Head.from_params(load(save(head.to_params())))
    assert torch.equal(back.weight_CD, head.weight_CD)
    assert (back.scale, back.classes) == (head.scale, head.classes)
    wide = Head(torch.ones(2, 9), 3.0, ("a", "b"), torch.eye(3)[:2])
    again = Head.from_params(load(save(wide.to_params())))
    assert torch.equal(again.narrow().weight_CD, torch.eye(3)[:2])
    assert torch.equal(again.weight_CD, wide.weight_CD)


def test_a_wide_head_sees_three_views_and_a_narrow_one_the_moved_features() -> None:
    plain, moved = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])
    wide = Head(torch.eye(6), 3.0, tuple("abcdef"), torch.zeros(6, 2))
    difference = torch.tensor([[-3.0, -2.0]]) / 13**0.5
    expected = torch.cat([torch.tensor([[0.0, 1.0, 0.6, 0.8]]), difference], 1)
    torch.testing.assert_close(wide.views(plain, moved), expected)
    assert wide.narrow().views(plain, moved) is moved


def test_what_inner_blocks_give_is_a_view_of_heads_that_have_weights_for_it() -> None:
    plain, moved = torch.tensor([[3.0, 4.0, 0.0, 6.0, 8.0]]), torch.tensor([[0.0, 2.0]])
    names = tuple("abcdefghi")
    wide, before = (
        Head(torch.eye(size), 3.0, names[:size], torch.zeros(size, 2)) for size in (9, 6)
    )
    seen = wide.views(plain, moved)
    torch.testing.assert_close(seen[:, 6:], torch.tensor([[0.0, 1.2, 1.6]]))  # of f's length, 5
    torch.testing.assert_close(seen[:, :6], before.views(plain[:, :2], moved))
    torch.testing.assert_close(before.views(plain, moved), before.views(plain[:, :2], moved))


def test_rows_and_classes_must_agree() -> None:
    with pytest.raises(ValueError, match="2 rows for 1 classes"):
        Head(torch.eye(2), 1.0, ("a",))


def test_heads_that_were_fitted_on_other_inner_blocks_are_refused() -> None:
    head = Head(torch.zeros(2, 3 * 4 + 2), 1.0, ("a", "b"), narrow_CD=torch.zeros(2, 4))
    with pytest.raises(BaseMismatch, match="inner blocks"):
        head.views(torch.rand(5, 4 + 6), torch.rand(5, 4))
    without = Head(torch.zeros(2, 3 * 4), 1.0, ("a", "b"), narrow_CD=torch.zeros(2, 4))
    assert without.views(torch.rand(5, 4 + 6), torch.rand(5, 4)).shape == (5, 12)
