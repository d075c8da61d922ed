"""`tacl VERB`. A verb imports what it needs; nothing heavy is imported before."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

# How often threads of torch that wait for each other spin before they sleep, here and in Ray's
# processes. The default, 300 times as often, takes CPU time of a busy machine from the thread that
# is waited for: a training step of two threads beside one other process took 0.73 s, now 0.42 s.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

VERBS = "cluster backup tasks models interchange users reproduce bench demo"  # in the help's order

try:
    from jobs.cli.app import app

    for _verbs in VERBS.split():
        import_module(f"jobs.cli.verbs.{_verbs}")
except KeyboardInterrupt:  # in the first tenths of a second
    raise SystemExit(130) from None


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):  # names of classes and files may have any character
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
