"""Nonsense: short texts of letters without meaning, which are inputs of no task.

An encoder was never trained on such texts and may put them near any class: hashed keys, for one,
would be answered with high confidence. The detector of inputs of no task learns from some of them
as outliers (arXiv 1812.04606; results/heads-choice.md has the gain). Pictures need no nonsense:
noise and plain colours are far from every class.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

LEARNED, JUDGED = 128, 32  # texts added to the generic samples for learning, and for judging
WORDS = 20  # of a text, at most
LETTERS = 12  # of a word, at most: a text may have no spaces


def with_nonsense(inputs: Sequence[bytes | str], count: int) -> list[bytes | str]:
    """The inputs, followed by `count` texts of nonsense made from the texts among them, if any."""
    texts = [one for one in inputs if isinstance(one, str) and one.strip()]
    return [*inputs, *(nonsense(texts, count) if texts else ())]


def nonsense(texts: Sequence[str], count: int) -> list[str]:
    """`count` nonsense texts, each from a piece of one of `texts`; a function of the arguments.
    Every second one has its piece's letters shuffled, the others have random letters."""
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
