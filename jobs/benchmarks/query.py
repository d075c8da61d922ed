"""What fitted heads cost a query: a predictor's answers with them and *none of these*, against
those with the heads of the training. Vectors are random; preparing the pictures is included."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.api.service import Question
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.tasks import VectorRef
from cluster.domain.work import FitTask, FitWork
from cluster.learner.heads import fit
from cluster.registry import Registry
from cluster.serving.predictor import Predictor
from cluster.storage.home import Home
from cluster.storage.listed import store_tasks
from jobs.benchmarks.synthetic import founded, pictures_of
from jobs.benchmarks.timing import Run, Say, in_turns, setting

TASKS = 8
ROWS = 16  # of a batch of queries
REPEATED = 20  # times that a query is repeated in a turn, as it takes milliseconds


def bench_query(rounds: int, say: Say) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home = founded(Path(folder), TASKS).home
        trained, fitted = _models(home)
        predictor = Predictor(str(home.path))
        field: dict[str, Run] = {}
        for rows in (1, ROWS):
            pictures = pictures_of(rows)
            field[f"trained_{rows}"] = _asked(predictor, trained, pictures)
            field[f"fitted_{rows}"] = _asked(predictor, fitted, pictures)
        times = in_turns(field, rounds, "cpu", say)
    ratios = {
        f"ratio_{rows}": times.ratio(f"fitted_{rows}", f"trained_{rows}") for rows in (1, ROWS)
    }
    return {**setting("embedded", "cpu", rounds), "tasks": TASKS, **times.figures(), **ratios}


def _asked(predictor: Predictor, model: Composition, pictures: Sequence[bytes]) -> Run:
    question = Question(model, pictures)

    def run() -> None:
        for _ in range(REPEATED):
            predictor.ask(question)

    return run


def _models(home: Home) -> tuple[Composition, Composition]:
    """The sum of all vectors with the heads of the training, and with heads that a fit has made."""
    registry = Registry(home.registry_url)
    refs = [*registry.champion_references().values()]
    rows = {task.submission.name: task.submission for task in registry.tasks()}
    registry.close()
    tasks = tuple(
        FitTask(vector=ref, train=rows[ref.task].train, validation=rows[ref.task].validation)
        for ref in refs
    )
    listed = store_tasks(home.blobs(), tasks)
    work = FitWork(run_id="fit", base=home.founded().base, owner="", listed=listed, attempt=1)
    found = fit(work, home, lambda done, of, loss: False)
    heads = {one.task: one.head for one in found.heads}
    fitted = [ref.model_copy(update={"head_blob": heads[ref.task]}) for ref in refs]
    with_novelty = _sum("fitted", fitted).model_copy(update={"novelty": found.novelty})
    return _sum("trained", refs), with_novelty


def _sum(digest: str, refs: Sequence[VectorRef]) -> Composition:
    terms = tuple(RecipeTerm(coefficient=1.0, vector=ref) for ref in refs)
    return Composition(digest=digest, user="bench", terms=terms)
