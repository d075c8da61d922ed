"""`tacl VERB`. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

from importlib import import_module

from jobs.cli.app import app

VERBS = "cluster backup tasks models interchange users reproduce bench demo"  # as help lists them

for _verbs in VERBS.split():
    import_module(f"jobs.cli.verbs.{_verbs}")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
