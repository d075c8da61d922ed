"""A home with two trained tasks, learned without Ray."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.domain.tasks import Submission, VectorRef
from cluster.domain.work import Trained
from cluster.learner import training
from cluster.learner.artifacts import Materials
from cluster.learner.learner import Learner
from cluster.storage.home import Home
from tests.support import tiny

STEPS = 16


@dataclass
class Scene:
    """A home with two trained tasks."""

    home: Home
    tasks: list[Submission]
    trained: list[Trained]

    @property
    def refs(self) -> list[VectorRef]:
        return [tiny.published(*pair) for pair in zip(self.tasks, self.trained, strict=True)]

    @property
    def materials(self) -> Materials:
        settings = self.home.settings()
        assert settings is not None
        return Materials(self.home, settings.base)


def train(home: Home, task: Submission, teller: training.LeaseClient, attempt: int = 1) -> Trained:
    trained = Learner(str(home.path), teller).work(tiny.train_work(home, task, attempt))
    assert isinstance(trained, Trained)
    return trained


def new_task(home: Home, number: int, **options: object) -> Submission:
    chosen = {"steps": STEPS, "learning_rate": 1e-3, "strength": 0.1, "engine": "plain"}
    return tiny.submission(home, number, noise=90, **{**chosen, **options})
