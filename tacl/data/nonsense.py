"""Nonsense: short texts of letters without meaning, which are the input of no task.

An encoder has never been trained on them, and may put them beside any class: on hashed keys people
get an answer with much confidence. What tells inputs of no task learns from some of them, as from
outliers (arXiv 1812.04606; results/heads-choice.md has what it gives). Of pictures it needs none:
noise and plain colours are far from every class.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

LEARNED, JUDGED = 128, 32  # texts beside the generic samples that are learned from, and judged by
WORDS = 20  # of a text, at most
LETTERS = 12  # of a word, at most: a text may have no spaces


def with_nonsense(inputs: Sequence[bytes | str], count: int) -> list[bytes | str]:
    """The inputs, and so many texts of nonsense made from those that are texts."""
    texts = [one for one in inputs if isinstance(one, str) and one.strip()]
    return [*inputs, *(nonsense(texts, count) if texts else ())]


def nonsense(texts: Sequence[str], count: int) -> list[str]:
    """So many texts, each of pieces of one of these: a function of them and the count. Of every
    second the letters are in another order, of the others they are drawn."""
    chance = random.Random(count)
    return [_garbled(chance.choice(texts), row % 2 == 0, chance) for row in range(count)]


def _garbled(text: str, own_letters: bool, chance: random.Random) -> str:
    words = text.split()
    start = chance.randrange(max(1, len(words)))
    piece = [word[:LETTERS] for word in words[start : start + chance.randint(1, WORDS)]]
    letters = [letter for word in piece for letter in word]
    if own_letters:
        chance.shuffle(letters)
    else:
        letters = [chance.choice(string.ascii_lowercase) for _ in letters]
    left = iter(letters)
    return " ".join("".join(next(left) for _ in word) for word in piece)
