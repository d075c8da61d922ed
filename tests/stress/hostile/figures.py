"""The figures of a run as Markdown."""

from __future__ import annotations

from jobs.console.documents import markdown_table
from tests.stress.hostile.judging import BUDGETS, Found, Seconds


def written(found: Found) -> str:
    killed = ", ".join(f"{count} × {kind}" for kind, count in found.killed.items())
    faults = [f"- {fault}" for fault in _first(found.faults())] or ["Nothing."]
    parts = [
        "# A hostile half hour",
        f"`{found.command}` makes this: a home with the embedded base, real trainings, the server "
        "as `tacl serve` starts it, and four users over HTTP for "
        f"{found.minutes:.0f} minutes; tests/stress/hostile says who does what. {found.machine}. "
        f"{found.tasks} tasks with {found.vectors} vectors at the end. Killed by SIGKILL: {killed} "
        f"({sum(found.killed.values())} in all).",
        markdown_table(
            ("lost", "doubled", "wrong", "answers of 500 without a kill"),
            [
                tuple(
                    str(len(one)) for one in (found.lost, found.doubled, found.wrong, found.defects)
                )
            ],
        ),
        "## What falls short",
        "\n".join(faults),
        "## How long the well-behaved user waited",
        "One picture at a time, asked again until it is answered. Windows with and without the "
        "attackers take turns, kills in both; what overlaps the time between a kill and the "
        "server's return is in the last row alone.",
        markdown_table(
            ("", "answers", "p50 ms", "p99 ms", "longest ms"),
            [
                _row("without the attackers", found.quiet),
                _row("with them", found.attacked),
                _row("all, kills included", found.whole_run),
            ],
        ),
        f"p99 with the attackers is {found.slower:.2f} times that without.",
        "## What was answered",
        markdown_table(("user", "answers", "by status (0: none)"), _statuses(found)),
        "Refusals by their class: "
        + ", ".join(f"{count:,} {error}" for error, count in found.refused.items())
        + ".",
        "## Until the server was whole again",
        markdown_table(
            ("killed", "times", "median s", "longest s"),
            [
                (kind, f"{len(one)}", f"{sorted(one)[len(one) // 2]:.1f}", f"{max(one):.1f}")
                for kind, one in found.recovery.items()
            ],
        ),
        "## Memory",
        "Resident MiB of the largest process of each kind, seen every two seconds.",
        markdown_table(
            ("process", "MiB", "of"),
            [(kind, f"{most}", f"{BUDGETS[kind]}") for kind, most in sorted(found.memory.items())],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _first(faults: list[str], most: int = 20) -> list[str]:
    more = [f"and {len(faults) - most} more"] if len(faults) > most else []
    return faults[:most] + more


def _row(name: str, one: Seconds) -> tuple[str, ...]:
    times = (f"{1000 * value:.0f}" for value in (one.p50, one.p99, one.longest))
    return name, f"{one.answers:,}", *times


def _statuses(found: Found) -> list[tuple[str, ...]]:
    return [
        (who, f"{sum(of.values()):,}", ", ".join(f"{n:,} × {status}" for status, n in of.items()))
        for who, of in found.answers.items()
    ]
