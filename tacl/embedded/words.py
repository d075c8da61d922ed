"""Byte-pair tokens of the embedded base model: open_clip's vocabulary, cut to its first merges.

arXiv 2103.00020, section 2.4: words are lower-cased and end with a mark; a text has a start and an
end mark.
"""

from __future__ import annotations

import gzip
import html
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor

WORD = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
END = "</w>"


class Words:
    """texts -> int64 [N, length]: start mark, tokens cut to fit, end mark, zeros."""

    def __init__(self, merges: Path, length: int) -> None:
        with gzip.open(merges, "rt", encoding="utf-8") as file:
            _, *lines = file.read().splitlines()
        pairs = [(first, second) for first, second in (line.split() for line in lines)]
        letters = _letters()
        names = [*letters, *(c + END for c in letters), *(a + b for a, b in pairs)]
        numbers = {name: number for number, name in enumerate(names)}
        self.length, self.start, self.end = length, len(names), len(names) + 1
        self._bytes_to_tokens = Tokenizer(
            models.BPE(vocab=numbers, merges=pairs, end_of_word_suffix=END)
        )
        spaces = normalizers.Replace(Regex(r"\s+"), " ")
        self._bytes_to_tokens.normalizer = normalizers.Sequence([spaces, normalizers.Lowercase()])  # pyright: ignore[reportAttributeAccessIssue]
        self._bytes_to_tokens.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
            [
                pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def __call__(self, texts: str | Sequence[str]) -> Tensor:
        texts = [texts] if isinstance(texts, str) else texts
        found = torch.zeros(len(texts), self.length, dtype=torch.int64)
        for row, text in zip(found, texts, strict=True):
            ids = self._bytes_to_tokens.encode(html.unescape(html.unescape(text)).strip()).ids
            ids = [self.start, *ids[: self.length - 2], self.end]
            row[: len(ids)] = torch.tensor(ids)
        return found


def _letters() -> list[str]:
    """A printable character for each byte: its own, or one of number 256 and above."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + place) for place in range(len(others))]
