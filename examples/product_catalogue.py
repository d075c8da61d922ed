"""A catalogue of product pictures that grows by category; each customer has a model of their own.

A model changes when its user composes. `ann.badges` is private: bob hears of no such task. Pictures
are drawn, the encoder is small and random; for a real one say `up("open_clip:NAME@WEIGHTS")`.

`python examples/product_catalogue.py` prints

    ann: cloth 1.00
    bob: cloth 0.94 toys 1.00
    ann: ann.badges 1.00 cloth 0.94
    bob, of ann.badges: UnknownTask
    bob still has cloth toys
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from cluster import Client
from tacl import TaclError

FOLDER = Path("catalogue")
SORTS = ("plain", "striped", "dotted", "chequered")


def photos(category: int, rows: int = 160) -> list[tuple[bytes, str]]:
    """A sort has one pattern in each category, under noise."""
    random = np.random.default_rng(category)
    patterns = random.integers(40, 216, (len(SORTS), 4, 4, 3)).repeat(8, 1).repeat(8, 2)
    found = []
    for row in range(rows):
        pixels = patterns[row % 4] + random.normal(0, 60, (32, 32, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file := io.BytesIO(), "PNG")
        found.append((file.getvalue(), SORTS[row % 4]))
    return found


def arrives(client: Client, name: str, category: int, private: bool = False) -> None:
    client.submit(name, photos(category), private=private, steps=12, engine="plain")
    client.wait()


def show(client: Client, customer: str, *terms: str) -> None:
    client.compose(customer, terms)
    found = client.evaluate(customer).per_task  # on test pictures
    print(f"{customer}:", *(f"{task} {found[task]['composed']:.2f}" for task in sorted(found)))


def main() -> None:
    (FOLDER / "any").mkdir(parents=True)
    torch.manual_seed(0)
    weights = timm.create_model("test_vit", num_classes=0).state_dict()
    save_file(weights, FOLDER / "encoder.safetensors")
    for row, (picture, _) in enumerate(photos(99, rows=40)):
        (FOLDER / "any" / f"{row}.png").write_bytes(picture)
    ann, bob = (Client(FOLDER / "home", user=user) for user in ("ann", "bob"))
    ann.up(f"timm:test_vit@{FOLDER.absolute()}/encoder.safetensors?size=32", FOLDER / "any")
    arrives(ann, "cloth", 1)
    show(ann, "ann", "+cloth")
    arrives(bob, "toys", 2)
    show(bob, "bob", "+cloth", "+toys")
    arrives(ann, "ann.badges", 3, private=True)
    show(ann, "ann", "+cloth", "+ann.badges")
    try:
        bob.compose("bob", ["+toys", "+ann.badges"])
    except TaclError as error:
        print("bob, of ann.badges:", type(error).__name__)
    print("bob still has", *(term.vector.task for term in bob.composition("bob").terms))
    ann.down()


if __name__ == "__main__":
    main()
