"""demo, pretrain: the embedded base model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from jobs import console
from jobs.cli.app import Json, Told, ending, verb
from jobs.cli.options import flag, number, place


@verb("embedded base model")
def demo(
    keep: Annotated[
        Path | None,
        place(
            "DIR",
            "A new directory for the demo's home, kept afterwards.",
            "--keep",
            "--home",
            show_default="a temporary one",
        ),
    ] = None,
    quick: Annotated[bool, flag("--quick", "Two tasks and few steps: at most a minute.")] = False,
    as_json: Json = False,
) -> None:
    """Run all of TACL once, on generated images.

    No data, no network, no GPU; 4 to 7 minutes on 2 CPUs. Nothing is left running.
    """
    from jobs.demo.run import run
    from jobs.demo.story import QUICK

    with ending("stopped; nothing is left running"):
        run(keep, as_json, QUICK if quick else None)


@verb("embedded base model")
def pretrain(
    out: Annotated[Path, place("DIR", "Where to write encoder.safetensors and its record.")],
    steps: Annotated[int | None, number("Optimizer steps.", show_default="as shipped")] = None,
    seed: Annotated[int, number("Seed of weights and data.", 0)] = 0,
) -> Told:
    """Pre-train the embedded base model from a seed.

    At most 30 minutes on 2 CPUs.
    """
    from jobs.pretrain import PretrainConfig, pretrain

    chosen = {} if steps is None else {"steps": steps}
    record = pretrain(PretrainConfig(seed=seed, **chosen), out)
    return record, lambda r: console.tables.pretrained(r, out)
