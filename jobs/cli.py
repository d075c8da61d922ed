"""`tacl VERB`. Nothing heavy is imported before a verb needs it."""

# isort: skip_file
from __future__ import annotations

from jobs.verb import app
from jobs.verbs import cluster, tasks, models, interchange  # in the order of the help page
from jobs.verbs import users, reproduce, bench, embedded

__all__ = [
    "app",
    "bench",
    "cluster",
    "embedded",
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
