"""Label-free refresh under other settings: how many samples, what strength, one delta or many."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from jobs.experiments import plots, saw
from jobs.experiments.context import Bench
from jobs.experiments.merging import one_delta
from jobs.experiments.methods import Merging, after_refresh, linear, total
from jobs.experiments.models import Vectors, summed
from jobs.experiments.spec import Spec
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry, Numbers, figures, shares
from jobs.experiments.tables import addition
from tacl.training.config import RefreshConfig

ABOUT = (
    "Vectors of linear fine-tuning without a penalty, each refreshed against the samples of all "
    "other tasks, and summed at 1.0. *Left*: interference on held-out samples after the refresh "
    "over before it; *own change*: of the vector's own function there (mean squares), both means "
    "over the tasks. *Accepted*: the share of refreshes that the held-out samples let pass. "
    "*Of training*: CPU seconds of a refresh over those of the vector's training, the largest of "
    "all tasks."
)
COLUMNS = (
    *shares(absolute="absolute", normalised="normalised", individual="individual"),
    *shares(class_incremental="class-incremental", left="left", own_change="own change"),
    *shares(accepted="accepted"),
    *figures(of_training="of training"),
)
SAMPLES = (16, 64, 960)
STRENGTHS = (0.3, 1.0, 10.0)


@dataclass(frozen=True)
class Refreshing(Merging):
    """Every vector is refreshed with `config` before all are added up, where there is one."""

    config: RefreshConfig | None = None

    def refreshed(self, bench: Bench, first: Vectors) -> Vectors:
        return after_refresh(bench, first, self.config) if self.config else first


def methods(suite: Suite) -> list[Refreshing]:
    """The suite's own settings, and what differs from them."""
    own, plain = suite.refresh, Refreshing("none", linear, saw.LABELS, saw.NOTHING, total)
    configs = {
        "refreshed": own,
        **{f"{n} samples": replace(own, samples=n) for n in SAMPLES},
        **{f"strength {x:g}": replace(own, strength=x) for x in STRENGTHS},
        "twice the steps": replace(own, steps=2 * own.steps),
    }
    inputs = replace(plain, saw_merging=saw.INPUTS)
    each = [replace(inputs, name=name, config=config) for name, config in configs.items()]
    return [plain, *each, replace(inputs, name="one delta", make=one_delta)]


def entry(bench: Bench, method: Refreshing) -> Entry:
    first = method.vectors(bench)
    now = method.refreshed(bench, first)
    model = summed(bench, first, now) if method.config else method.make(bench, first)
    found = addition.of_model(bench, method, replace(model, facts={}))
    return replace(found, numbers=found.numbers | _judged(first, now))


def _judged(first: Vectors, now: Vectors) -> Numbers:
    """Of the refreshes, where there are some."""
    facts = [vector.refresh.facts for vector in now.values() if vector.refresh is not None]
    if not facts:
        return {}
    return {
        "left": statistics.fmean(
            f["after"]["interference"] / f["before"]["interference"] for f in facts
        ),
        "own_change": statistics.fmean(f["after"]["own"] for f in facts),
        "accepted": statistics.fmean(f["accepted"] for f in facts),
        "of_training": max(
            vector.later.cpu_seconds / first[task].cost.cpu_seconds for task, vector in now.items()
        ),
    }


SPECS = (Spec("refresh", ABOUT, COLUMNS, methods, entry, plots.bars),)
