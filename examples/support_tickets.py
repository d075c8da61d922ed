"""Support tickets of three teams in one model; each team keeps its labels. About a minute.

A team trains on its own tickets; of the others' it sees texts without labels. A ticket is sorted
among the classes of its team (sum), or of all when nobody says whose it is (team unknown). What is
more like other mail is none of these, and so are about 1 in 20 tickets. The encoder is a small
random one: for a real one give `tacl.load("hf:models/minilm")` and rows `base.prepare(text)`.

`.venv/bin/python examples/support_tickets.py` prints

    team       base   own   sum   team unknown
    billing   0.887 1.000 1.000 0.958
    technical 0.938 0.988 0.988 0.954
    shipping  0.871 0.979 0.983 0.938
    none of these: billing 0.050 technical 0.033 shipping 0.058 other 0.850
"""

import random
import zlib

import torch
from torch import Tensor, nn

import tacl
from tacl.heads.head import union
from tacl.heads.novelty import Novelty

WORDS = {
    "billing refund": "money back returned charged twice wrong amount",
    "billing invoice": "invoice copy address tax number month",
    "billing payment": "card declined payment transfer bank failed",
    "technical crash": "crash closes freezes black screen error start",
    "technical login": "password login locked code account reset failed",
    "technical update": "update version install stuck download error",
    "shipping late": "late waiting days delayed tracking where month",
    "shipping damaged": "broken box damaged wet wrong returned screen",
    "shipping moved": "address moved street wrong change number account",
    "other mail": "apply position salary interview article journalist quote photo",
}
TEAMS: tuple[str, ...] = ("billing", "technical", "shipping")
FILLER = ("hello", "my", "is", "again", "please", "help", "since", "yesterday", "still", "thanks")


def tickets(team: str, seed: int) -> tuple[Tensor, Tensor]:
    """240 texts as counts of words, and their classes."""
    draw = random.Random(f"{team} {seed}")
    words = [text.split() for name, text in WORDS.items() if name.startswith(team)]
    counts, labels = torch.zeros(240, 512), torch.arange(240) % len(words)
    for row, label in zip(counts, labels.tolist(), strict=True):
        text = draw.sample(FILLER, 5) + draw.choices(words[label], k=2)
        row[[zlib.crc32(word.encode()) % 512 for word in text]] += 1
    return counts, labels


def main() -> None:
    torch.manual_seed(0)
    base = tacl.wrap(nn.Sequential(nn.Linear(512, 128), nn.GELU(), nn.Linear(128, 64)))
    train, test, held = ({team: tickets(team, n) for team in (*TEAMS, "other")} for n in range(3))
    heads, vectors = {}, {}
    for team, (x, y) in train.items():
        classes = tuple(name for name in WORDS if name.startswith(team))
        heads[team] = tacl.prototype_head(tacl.features(base, x), y, classes)
    for team in TEAMS:
        rest = [x for other, (x, _) in train.items() if other != team]
        vectors[team] = tacl.train(base, train[team], heads[team], against=rest, learning_rate=1e-2)
    novelty = Novelty.of(heads, {team: tacl.features(base, x) for team, (x, _) in held.items()})
    everybody, every_class = dict.fromkeys(TEAMS, 1.0), union([heads[team] for team in TEAMS])
    print("team       base   own   sum   team unknown")
    for number, team in enumerate(TEAMS):
        x, y = test[team]
        known = tacl.evaluate(base, (x, y), heads[team], vectors)
        unknown = tacl.evaluate(base, (x, y + 3 * number), every_class, vectors)
        found = [known.accuracy(recipe) for recipe in ({}, {team: 1.0}, everybody)]
        print(f"{team:9}", *(f"{one:.3f}" for one in found), f"{unknown.accuracy(everybody):.3f}")
    low = novelty.threshold(TEAMS)
    none = {k: novelty.belonging(tacl.features(base, x), TEAMS) < low for k, (x, _) in test.items()}
    print("none of these:", *(f"{team} {told.float().mean():.3f}" for team, told in none.items()))


if __name__ == "__main__":
    main()
