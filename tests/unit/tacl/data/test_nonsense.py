"""Nonsense: what it is made of, and that a keyboard's is no class of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacl.backbone import load_backbone
from tacl.data.batches import in_order
from tacl.data.nonsense import JUDGED, LEARNED, LETTERS, WORDS, nonsense, with_nonsense
from tacl.heads.fitting import LabelledFeatures, frozen_heads
from tacl.heads.head import Head
from tests.support.budget import budget

TEXTS = st.lists(st.text(max_size=80).filter(str.strip), min_size=1, max_size=5)


@given(TEXTS, st.integers(0, 12))
@settings(max_examples=budget(60), deadline=None)
def test_it_is_short_texts_with_as_many_letters_as_pieces_of_these(
    texts: list[str], count: int
) -> None:
    found = nonsense(texts, count)
    assert found == nonsense(texts, count)
    assert len(found) == count
    for text in found:
        words = text.split()
        assert text
        assert len(words) <= WORDS
        assert max(map(len, words), default=0) <= LETTERS


def test_no_word_stays_what_it_was() -> None:
    sentence = "the quick brown foxes jumped over several lazy sleeping shepherds"
    words = set(sentence.split())
    found = [word for text in nonsense([sentence], 50) for word in text.split()]
    assert sum(len(word) > 3 and word in words for word in found) <= 1
    assert {len(word) for word in found} <= {len(word) for word in words}


def test_pictures_and_texts_without_letters_give_none() -> None:
    assert with_nonsense([b"1", b"2"], 3) == [b"1", b"2"]
    assert with_nonsense([" "], 3) == [" "]
    assert with_nonsense(["some text"], 3)[0] == "some text"
    assert len(with_nonsense(["some text"], 3)) == 4


def test_what_is_typed_at_random_is_none_of_the_tasks_of_a_text_model(shared: Path) -> None:
    base = load_backbone(f"hf:{shared / 'models' / 'minilm'}")

    def rows(name: str, count: int) -> tuple[list[str], torch.Tensor]:
        table = pq.read_table(shared / "data" / "text" / name / "train-00000.parquet")[:count]
        (column,) = (one for one in table.column_names if one != "label")
        return table[column].to_pylist(), torch.tensor(table["label"].to_pylist())

    def seen(texts: Sequence[bytes | str]) -> torch.Tensor:
        items = [base.prepare(text) for text in texts]
        return in_order(items, 32, lambda some: (base.plain(base.collate(some)),))[0]

    texts, labels_N = rows("tweet_emotion", 200)
    features_ND = seen(texts)
    train = {"emotion": LabelledFeatures(features_ND[:150], labels_N[:150])}
    validation = {"emotion": LabelledFeatures(features_ND[150:], labels_N[150:])}
    trained = {"emotion": Head(torch.zeros(4, 384), 16.0, ("0", "1", "2", "3"))}
    generic = [text[:300] for text in rows("imdb", 60)[0]]
    typed = seen(["qwzx 8812 lorem 77 blargh", "asdf jkl hjkl", "sdfg lkjh poiu", "a8f3e9c1b7"])

    def belonging(learned: Sequence[bytes | str], judged: Sequence[bytes | str]) -> float:
        _, novelty = frozen_heads(trained, train, validation, (seen(learned), seen(judged)))
        return novelty.belonging(typed, [*trained]).mean().item()

    assert belonging(generic[:45], generic[45:]) > 0.9
    learned, judged = with_nonsense(generic[:45], LEARNED), with_nonsense(generic[45:], JUDGED)
    assert belonging(learned, judged) < 0.2
