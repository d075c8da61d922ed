"""A whole home in one process: the real coordinator, with work that is done when it is polled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.api.service import Answered, Question
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Composition
from cluster.domain.explanations import BASE as BASE_MODEL
from cluster.domain.explanations import Contribution, Explanation, parts_of
from cluster.domain.methods import answering
from cluster.domain.operations import Belonging, Candidate, Ranked
from cluster.domain.outcomes import Finished, Outcome, Raised
from cluster.domain.status import ClusterStatus, CompositionRun
from cluster.domain.work import ComposeWork, Evaluated, EvaluateWork, Refreshed, TrainWork
from cluster.storage.home import Home
from tests.support.fakes import BASE, FakeLauncher, FakeProcess, result_of

PICTURES = BASE.model_copy(update={"modality": "image"})


@dataclass
class Instant(FakeLauncher):
    """Work takes no time, unless it is `paused`; it fails for tasks, and for users' compositions
    and evaluations, in `broken`."""

    home: Home = field(kw_only=True)
    broken: set[str] = field(default_factory=set)
    paused: bool = False

    def poll(self, handle: FakeProcess) -> Outcome | None:
        work = handle.work
        if self.paused:
            return None
        if isinstance(work, TrainWork) and work.submission.name in self.broken:
            return Raised("the loss is not a number at step 3")
        if isinstance(work, ComposeWork) and work.user in self.broken:
            return Raised("no coefficient is any good")
        if isinstance(work, EvaluateWork) and work.composition.user in self.broken:
            return Raised("CorruptBlob: the test rows are harmed")
        return Finished(result_of(work, self.home.blobs(), lambda s, t: 2.0 if s == t else 0.5))


class InProcess(Coordinator):
    """The coordinator that ticks whenever its status or a result is requested."""

    def status(
        self, context: RequestContext, since: str = "", tasks: Sequence[str] = ()
    ) -> ClusterStatus:
        self.tick()
        return super().status(context, since, tasks)

    def version(self) -> str:
        self.tick()
        return super().version()

    def composition_run(self, context: RequestContext, user: str, run_id: str) -> CompositionRun:
        self.tick()
        return super().composition_run(context, user, run_id)

    def evaluation(self, context: RequestContext, run_id: str) -> Evaluated | None:
        self.tick()
        return super().evaluation(context, run_id)

    def refreshed(self, context: RequestContext, run_id: str) -> Refreshed | None:
        self.tick()
        return super().refreshed(context, run_id)


class Guess:
    """A predictor with constant answers."""

    def __init__(self, belonging: float = 0.875) -> None:
        self._belonging = Belonging(probability=belonging, none=belonging <= 0.5)

    def ask(self, question: Question) -> Answered:
        model, tasks, count = question.model, question.tasks, len(question.inputs)
        if question.features:
            return Answered([], features=[[0.5, len(one) / 3] for one in question.inputs])
        if question.explain:
            task = tasks[0] if tasks else None
            return Answered([], explanations=(explained(model, task),) * count)
        one: Ranked = {name: [("a", 0.75), ("b", 0.25)] for name in tasks or answering(model)}
        answers, belonging = [one] * count, [] if tasks else [self._belonging] * count
        return Answered(answers, answers if question.beside_base else None, belonging)


def explained(model: Composition, task: str | None = None) -> Explanation:
    """Every part adds 1 to class a, and 0.5 to class b, of each task."""
    names, parts = (task,) if task else answering(model), (BASE_MODEL, *parts_of(model))

    def by_class(times: int) -> dict[str, dict[str, float]]:
        return {name: {"a": 1.0 * times, "b": 0.5 * times} for name in names}

    found = tuple(
        Contribution(
            part=part,
            length=2.0,
            share=1 / len(parts),
            logits=by_class(1),
            without=Candidate(task=names[0], label="b", probability=0.6) if place else None,
            probability=0.4 if place else None,
        )
        for place, part in enumerate(parts)
    )
    best = Candidate(task=names[0], label="a", probability=0.75)
    return Explanation(best=best, logits=by_class(len(parts)), parts=found)
