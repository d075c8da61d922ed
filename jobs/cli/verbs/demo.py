"""demo, pretrain: what the embedded encoder is for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.app import Home, Json, tell, verb


@verb("embedded encoder")
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            "--home",
            metavar="DIR",
            show_default="a temporary one",
            help="The demo's home, a new directory, to look around in afterwards.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two tasks and few steps: at most a minute.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The whole story on generated pictures.

    No data, no network, no GPU; at most 8 minutes on 2 CPUs, and nothing is left running.
    """
    from jobs.demo.run import run
    from jobs.demo.story import QUICK

    try:
        run(keep, as_json, QUICK if quick else None)
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        raise typer.Exit(130) from None


@verb("embedded encoder")
def pretrain(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="For encoder.safetensors and its record.")
    ],
    steps: Annotated[int | None, typer.Option(show_default="as shipped")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make the embedded encoder again from a seed.

    At most 30 minutes on 2 CPUs.
    """
    from jobs.console import tables
    from jobs.pretrain import PretrainConfig, pretrain

    chosen = {} if steps is None else {"steps": steps}
    record = pretrain(PretrainConfig(seed=seed, **chosen), out)
    tell(record, as_json, lambda r: tables.pretrained(r, out))
