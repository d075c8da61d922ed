"""Support tickets of three teams in one model; each team keeps its labels.

A team trains on its own tickets; of the others' it sees texts without labels. A ticket is sorted
among the classes of its team (sum), or of all when nobody says whose it is (team unknown). Words
are made up, and the encoder is a small random one over counts of words, so that it runs anywhere:
for a real one give `tacl.load("hf:models/minilm")` and rows `base.prepare(text)`.

`.venv/bin/python examples/support_tickets.py` prints

    team       base   own   sum   team unknown
    billing   0.887 1.000 1.000 0.971
    technical 0.938 0.988 0.988 0.950
    shipping  0.871 0.979 0.992 0.954
"""

from __future__ import annotations

import random
import zlib

import torch
from torch import Tensor, nn

import tacl
from tacl.heads.head import union

TEAMS = {
    "billing": {
        "refund": "money back returned charged twice wrong amount",
        "invoice": "invoice copy address tax number month",
        "payment": "card declined payment transfer bank failed",
    },
    "technical": {
        "crash": "crash closes freezes black screen error start",
        "login": "password login locked code account reset failed",
        "update": "update version install stuck download error",
    },
    "shipping": {
        "late": "late waiting days delayed tracking where month",
        "damaged": "broken box damaged wet wrong returned screen",
        "moved": "address moved street wrong change number account",
    },
}
FILLER = ("hello", "my", "is", "again", "please", "help", "since", "yesterday", "still", "thanks")


def tickets(team: str, seed: int) -> tuple[Tensor, Tensor]:
    """240 texts as counts of words, and their classes."""
    draw = random.Random(f"{team} {seed}")
    labels = [row % 3 for row in range(240)]
    words = [text.split() for text in TEAMS[team].values()]
    texts = [draw.sample(FILLER, 5) + draw.choices(words[label], k=2) for label in labels]
    counts = torch.zeros(len(texts), 512)
    for row, text in zip(counts, texts, strict=True):
        row[[zlib.crc32(word.encode()) % 512 for word in text]] += 1
    return counts, torch.tensor(labels)


def main() -> None:
    torch.manual_seed(0)
    base = tacl.wrap(nn.Sequential(nn.Linear(512, 128), nn.GELU(), nn.Linear(128, 64)))
    train, test = ({team: tickets(team, seed) for team in TEAMS} for seed in (0, 1))
    heads, vectors = {}, {}
    for team, (x, y) in train.items():
        heads[team] = tacl.prototype_head(tacl.features(base, x), y, tuple(TEAMS[team]))
    for team, rows in train.items():
        others = [x for other, (x, _) in train.items() if other != team]
        vectors[team] = tacl.train(base, rows, heads[team], against=others, learning_rate=1e-2)
    everybody, every_class = dict.fromkeys(TEAMS, 1.0), union(list(heads.values()))
    print("team       base   own   sum   team unknown")
    for number, (team, (x, y)) in enumerate(test.items()):
        known = tacl.evaluate(base, (x, y), heads[team], vectors)
        unknown = tacl.evaluate(base, (x, y + 3 * number), every_class, vectors)
        found = [known.accuracy(recipe) for recipe in ({}, {team: 1.0}, everybody)]
        print(f"{team:9}", *(f"{one:.3f}" for one in found), f"{unknown.accuracy(everybody):.3f}")


if __name__ == "__main__":
    main()
