"""`tacl VERB`. Nothing heavy is imported before a verb needs it."""

# isort: skip_file
from __future__ import annotations

from jobs.cli.app import app
from jobs.cli.verbs import (
    cluster,
    backup,
    tasks,
    models,
    interchange,
)  # in the order of the help page
from jobs.cli.verbs import users, reproduce, bench, demo

__all__ = [
    "app",
    "backup",
    "bench",
    "cluster",
    "demo",
    "interchange",
    "main",
    "models",
    "reproduce",
    "tasks",
    "users",
]


def main() -> None:
    app()


if __name__ == "__main__":
    main()
