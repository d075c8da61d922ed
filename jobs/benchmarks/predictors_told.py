"""The results of `jobs.benchmarks.predictors`, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.benchmarks.population import TERMS
from jobs.benchmarks.predictors import CHECKED, CPUS, PredictorsFound, PredictorsRow, ReadRow
from jobs.benchmarks.processes import REST
from jobs.console.documents import markdown_table

ASKED = ("predictors", "users drawn", "per second", "p50 ms", "p99 ms", "found in memory")
ASKED += ("MiB in each", "MiB of predictors", "MiB of all", "wrong answers")
READ = ("GET", "per second", "p99 ms", "ingress ms", "all ms", "slow echo's all ms")
READ += ("all, of the slow echo's", "echo's p99 ms", "echo's all ms", "all, of the echo's")
KINDS = ("predictor", "ingress", "proxy", REST)
TAKEN = ("predictors", "users drawn", *KINDS, "all but predictors", "slow echo's")
TAKEN += ("of the slow echo's", "of the echo's")


def markdown(found: PredictorsFound, command: str) -> str:
    plan, lines = found.plan, [*found.rows, found.echo]
    parts = [
        "# Many users, few predictors",
        f"{plan.vectors:,} vectors of {_mib(found.vector)} MiB, which move a few blocks of the "
        f"embedded base model; {plan.users:,} users with models of {TERMS} of them; "
        f"{plan.asking.requests:,} requests of one picture in each row, {plan.asking.at_once} at "
        f"once, after half as many that warm up, by each user with a token of their own. "
        f"`{command}` makes this. {found.machine}.",
        f"All predictors of a row together may fill {_mib(found.fill)} MiB, {plan.part:g} of what "
        f"all vectors have; a quarter of it is for models that are kept composed. Each reserves "
        f"{CPUS:g} processors and passes with one thread. Zipf: the n-th user asks in proportion "
        "to 1/n.",
        "## What users see",
        markdown_table(ASKED, map(_asked, lines), "---:"),
        "Found in memory: of the vectors and heads that passes needed. MiB in each: vectors, "
        "composed models and heads that each predictor has at the end; MiB of predictors and of "
        "all processes: of their memory, where what several share counts in parts. Every "
        f"answer names its user, their model and its tasks; of {CHECKED} users of a draw every "
        "probability is recomputed.",
        "## Milliseconds of processors for a request",
        markdown_table(TAKEN, _taken(found), "---:"),
        "Rest: the coordinator, Serve's controller, Ray. The echo is a deployment of Ray Serve "
        "that answers the same requests with as many probabilities and does no work. What Serve "
        "takes for a request falls where more of them come a second, for it wakes up once for "
        "several; the slow echo waits before it answers, so that it has as many requests a second "
        "as the row that it stands beside, and as many at once.",
        "## Reading",
        markdown_table(READ, map(_read, found.reads), "---:"),
        "What a client asks without a question: a user's model, and the list of those that a user "
        "sees, by users drawn uniformly. The server reads the registry itself; the echo answers "
        "with what the first user was told. Milliseconds are of processors for a request.",
        "## Goals",
        *_goals(found),
    ]
    return "\n\n".join(parts) + "\n"


def _asked(one: PredictorsRow) -> Sequence[str]:
    seen, together = one.facts, sum(one.memory.values())
    times = (f"{1000 * seconds:.0f}" for seconds in (seen.p50, seen.p99))
    found = f"{one.found:.2f}" if one.predictors else "-"
    each = ", ".join(map(_mib, sorted(one.resident))) or "-"
    memory = _mib(one.memory.get("predictor", 0)) if one.predictors else "-"
    row = _name(one), one.draw, f"{seen.per_second:.1f}", *times, found, each, memory
    return *row, _mib(together), f"{seen.wrong}"


def _taken(found: PredictorsFound) -> Iterator[Sequence[str]]:
    echo = found.echo
    for one, slow in zip(found.rows, found.slow, strict=True):
        ratios = (f"{one.around / other.around:.2f}" for other in (slow, echo))
        yield *_each(one), _ms(slow.around), *ratios
    yield *_each(echo), "-", "-", "1"


def _each(one: PredictorsRow) -> Sequence[str]:
    return _name(one), one.draw, *(_ms(one.cpu.get(kind)) for kind in KINDS), _ms(one.around)


def _read(one: ReadRow) -> Sequence[str]:
    ours, echo = one.ours, one.echo
    of_slow, of_echo = (f"{ours.around / other.around:.2f}" for other in (one.slow, echo))
    times = f"{1000 * ours.facts.p99:.0f}", _ms(ours.cpu["ingress"]), _ms(ours.around)
    beside = f"{1000 * echo.facts.p99:.0f}", _ms(echo.around), of_echo
    path = one.path.format(user="USER")
    return path, f"{ours.facts.per_second:.1f}", *times, _ms(one.slow.around), of_slow, *beside


def _name(one: PredictorsRow) -> str:
    return f"{one.predictors}" if one.predictors else "echo"


def _goals(found: PredictorsFound) -> Iterator[str]:
    goals = found.goals()
    lines = [
        (goal.what, f"{goal.goal:g}", f"{goal.measured:.2f}", "missed" if goal.missed else "")
        for goal in goals
    ]
    yield markdown_table(("what", "goal", "measured", ""), lines, "---:")
    missed = sum(goal.missed for goal in goals)
    yield f"At most {goals[0].goal:g} times an echo: {missed} of {len(lines)} missed."


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.1f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"
