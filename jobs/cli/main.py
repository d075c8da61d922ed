"""`tacl VERB`. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper

from jobs.cli.app import app

VERBS = "cluster backup tasks models interchange users reproduce bench demo"  # as help lists them

for _verbs in VERBS.split():
    import_module(f"jobs.cli.verbs.{_verbs}")


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):  # names of classes and files may have any character
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
