"""A catalogue of product pictures that grows by category; each customer has their own model.

A model changes only when its user composes. `ann.badges` is private: bob cannot see the task. The
pictures are generated, the base model is the embedded one. For real pictures call `story` with a
base model such as "open_clip:NAME@WEIGHTS", unlabelled pictures, and labelled pictures of each
category.

It writes to `catalogue/`: delete that folder to run it again. It took a minute on two cores, eight
minutes on busy ones.

`.venv/bin/python examples/product_catalogue.py` prints

    ann: cloth 0.85
    bob: cloth 0.86 toys 0.82
    ann: ann.badges 0.96 cloth 0.85
    bob, of ann.badges: UnknownTask
    bob still has cloth toys
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster import Client
from tacl import TaclError, embedded

FOLDER = Path("catalogue")
DRAWN = {"cloth": "textures", "toys": "shapes", "badges": "signs"}


def arrives(client: Client, name: str, pictures: Path, private: bool = False) -> None:
    client.submit(name, pictures, private=private, steps=12, engine="plain")
    client.wait()


def show(client: Client, customer: str, *terms: str) -> None:
    client.compose(customer, terms)
    found = client.evaluate(customer).per_task  # on test pictures
    print(f"{customer}:", *(f"{task} {found[task].composed:.2f}" for task in sorted(found)))


def story(base_model: str, unlabelled: Path | None, categories: Mapping[str, Path]) -> None:
    ann, bob = (Client(FOLDER / "home", user=user) for user in ("ann", "bob"))
    ann.up(base_model, unlabelled)
    arrives(ann, "cloth", categories["cloth"])
    show(ann, "ann", "+cloth")
    arrives(bob, "toys", categories["toys"])
    show(bob, "bob", "+cloth", "+toys")
    arrives(ann, "ann.badges", categories["badges"], private=True)
    show(ann, "ann", "+cloth", "+ann.badges")
    try:
        bob.compose("bob", ["+toys", "+ann.badges"])
    except TaclError as error:
        print("bob, of ann.badges:", type(error).__name__)
    print("bob still has", *(term.vector.task for term in bob.composition("bob").terms))
    ann.down()


def main() -> None:
    for task in DRAWN.values():
        embedded.write_parquet(task, FOLDER / task, train_rows=200, test_rows=100, seed=0)
    story("embedded", None, {name: FOLDER / task for name, task in DRAWN.items()})


if __name__ == "__main__":
    main()
