"""Support tickets of three teams in one model; each team keeps its labels. It takes seconds.

A team trains on its tickets, and on texts of others without labels. Columns: classes of the team
(sum), of all teams (team unknown). 1 in 20 tickets is answered "none of these", as is other mail.
With a small random base model, or yours, `.venv/bin/python examples/support_tickets.py` prints

    team       base   own   sum   team unknown
    billing   0.887 1.000 1.000 0.958
    technical 0.938 0.988 0.988 0.954
    shipping  0.871 0.979 0.983 0.938
    none of these: billing 0.025 technical 0.079 shipping 0.087 other 0.996
"""

import random
import sys
import zlib

import torch

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


def tickets(team: str, seed: int) -> tuple[list[str], torch.Tensor]:
    draw = random.Random(f"{team} {seed}")
    words = [text.split() for name, text in WORDS.items() if name.startswith(team)]
    labels = torch.arange(240) % len(words)
    return [" ".join(draw.sample(FILLER, 5) + draw.choices(words[k], k=2)) for k in labels], labels


def counted(text: str) -> torch.Tensor:
    words = torch.tensor([zlib.crc32(word.encode()) % 512 for word in text.split()])
    return torch.bincount(words, minlength=512).clamp(max=1).float()


def main(spec: str = "") -> None:
    torch.manual_seed(0)
    own = torch.nn.Sequential(torch.nn.Linear(512, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    base, rate = (tacl.load(spec), None) if spec else (tacl.wrap(own), 1e-2)
    row = base.prepare if spec else counted
    drawn = ({team: tickets(team, seed) for team in (*TEAMS, "other")} for seed in range(3))
    train, test, held = ({k: ([row(t) for t in x], y) for k, (x, y) in d.items()} for d in drawn)
    heads, vectors = {}, {}
    for team, (x, y) in train.items():
        classes = tuple(name for name in WORDS if name.startswith(team))
        heads[team] = tacl.prototype_head(tacl.features(base, x), y, classes)
        rest = [x for other, (x, _) in train.items() if other != team]
        if team in TEAMS:
            vectors[team] = tacl.train(base, (x, y), heads[team], against=rest, learning_rate=rate)
    seen = [{t: tacl.features(base, x) for t, (x, _) in d.items()} for d in (train, held, test)]
    novelty = Novelty.of(heads, {team: (seen[0][team], train[team][1]) for team in TEAMS}, seen[1])
    everybody, every_class = dict.fromkeys(TEAMS, 1.0), union([heads[team] for team in TEAMS])
    print("team       base   own   sum   team unknown")
    for number, (team, (x, y)) in enumerate(zip(TEAMS, test.values(), strict=False)):
        known = tacl.evaluate(base, (x, y), heads[team], vectors)
        unknown = tacl.evaluate(base, (x, y + 3 * number), every_class, vectors)
        found = *map(known.accuracy, ({}, {team: 1.0}, everybody)), unknown.accuracy(everybody)
        print(f"{team:9}", *(f"{one:.3f}" for one in found))
    none = {team: novelty.judge(x, TEAMS)[1] for team, x in seen[2].items()}
    print("none of these:", *(f"{team} {told.float().mean():.3f}" for team, told in none.items()))


if __name__ == "__main__":
    main(*sys.argv[1:2])
