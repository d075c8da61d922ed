"""`tacl VERB`. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

from jobs.cli.app import app

# Threads of torch that wait for each other try so often before they sleep, here and in Ray's
# processes. By default it is 300 times as often, which takes a busy machine from the thread that is
# waited for: a training step of two threads beside one other process, 0.73 s and then 0.42.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

VERBS = "cluster backup tasks models interchange users reproduce bench demo"  # as help lists them

for _verbs in VERBS.split():
    import_module(f"jobs.cli.verbs.{_verbs}")


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):  # names of classes and files may have any character
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
