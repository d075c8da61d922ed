"""Instructions and requests as work orders: everything a learner needs, by digest."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cluster.domain import work as orders
from cluster.domain.base import Base, BlobRef, identity
from cluster.domain.compositions import Composition, CompositionMethod, FittedHead
from cluster.domain.methods import answering
from cluster.domain.tasks import Shard, Submission, VectorRef
from cluster.reading.fits import HeadFit
from cluster.registry import Registry, TaskRecord
from cluster.scheduler.state import Champions, FitHeads, Measure, RefreshChampion
from cluster.storage.blobs import Blobs
from cluster.storage.listed import store_tasks
from tacl.compose.terms import MERGES


def training(base: Base, submission: Submission) -> orders.TrainWork:
    """The same inputs give the same run: who submits them, and how often, does not matter."""
    told = {"request_id", "owner", "private", "skipped", "notes", "rows"}
    parts = submission.model_dump(mode="json", exclude=told)
    run_id = identity("train", {"base": base.digest, "parent": None, **parts})
    return orders.TrainWork(run_id=run_id, base=base, submission=submission)


def measuring(registry: Registry, base: Base, measure: Measure) -> orders.MeasureWork:
    champions = {(cell.task, cell.vector) for cell in measure.cells}
    vectors = {task: _vector(registry, task, digest) for task, digest in champions}
    shards = registry.shards_with({(cell.on, cell.shard) for cell in measure.cells})
    pairs = tuple(
        (vectors[c.task], shards[c.on, c.shard].model_copy(update={"head": c.head}))
        for c in measure.cells
    )
    return orders.MeasureWork(run_id=measure.run_id, base=base, pairs=pairs)


def refreshing(registry: Registry, base: Base, refresh: RefreshChampion) -> orders.RefreshWork:
    named = ((refresh.task, refresh.own), *refresh.others)
    shards = registry.shards_with(named)
    versions = {one.version: one for one in registry.references(refresh.task)}
    vector = next(one for one in versions.values() if one.digest == refresh.vector)
    return orders.RefreshWork(
        run_id=refresh.run_id,
        base=base,
        vector=vector,
        first=_before_refreshes(versions, vector),
        own=shards[refresh.task, refresh.own],
        others=tuple(shards[one] for one in refresh.others),
        options=registry.task(refresh.task).submission.options,
    )


def fitting(base: Base, fit: FitHeads) -> orders.FitWork:
    """A fit of heads whose tasks are listed later, by `listed`."""
    unlisted = BlobRef(digest="", rows=len(fit.champions))
    return orders.FitWork(run_id=fit.run_id, base=base, owner=fit.owner, listed=unlisted)


def listed(
    registry: Registry,
    blobs: Blobs,
    work: orders.FitWork,
    champions: Champions,
    earlier: HeadFit | None = None,
) -> orders.FitWork:
    """Store the list of a fit's tasks, with the heads that an `earlier` fit has of the same
    vectors, and return the work that names it. Slow with many tasks: not under the lock."""
    found = earlier.heads if earlier else {}
    submissions = {task.name: task.submission for task in registry.tasks(with_removed=True)}
    now = registry.champion_references()  # one query for all: there may be thousands
    tasks = tuple(
        orders.FitTask(
            vector=now[task] if now[task].digest == digest else _vector(registry, task, digest),
            train=submissions[task].train,
            validation=submissions[task].validation,
            fitted=head if (head := found.get(task)) and head.vector == digest else None,
        )
        for task, digest in sorted(champions.items())
    )
    linearized = tuple(task for task in tasks if task.vector.regime == "linearized")
    return work.model_copy(update={"listed": store_tasks(blobs, linearized)})


def evaluation(
    registry: Registry,
    base: Base,
    model: Composition,
    fitted: Mapping[str, FittedHead],
    *,
    judge: BlobRef | None,
    materialized: bool,
    without: bool,
) -> orders.EvaluateWork:
    """`fitted`: by task, the heads with which the model answers instead of those of the training.
    `judge`: rows held out of the new task that the model was fitted to."""
    names = dict.fromkeys(term.vector.task for term in model.terms)
    tasks = tuple(
        orders.TaskData(
            name=task.name,
            classes=task.submission.classes,
            head_blob=first.head_blob,
            fitted_head=head and head.head,
            frozen_head=head and head.frozen,
            test=task.submission.test,
            individual=first,
        )
        for task, first in _with_first(registry, names)
        for head in (fitted.get(task.name),)
    )
    if model.target is not None and judge is not None:
        new = model.target.model_dump(include={"name", "classes", "head_blob"})
        tasks = (orders.TaskData(**new, test=judge, individual=None), *tasks)
    tests = [[task.name, task.test.digest] for task in tasks]
    parts: dict[str, object] = {"base": base.digest, "model": model.digest, "tests": tests}
    if fitted:
        parts["heads"] = [[task.name, task.fitted_head, task.frozen_head] for task in tasks]
    parts |= {"materialized": True} if materialized else {}
    parts |= {"without": True} if without else {}
    return orders.EvaluateWork(
        run_id=identity("evaluate", parts),
        base=base,
        composition=model,
        tasks=tasks,
        materialized=materialized,
        without=without,
    )


def composing(
    registry: Registry,
    base: Base,
    model: Composition,
    making: CompositionMethod,
    shards: Mapping[str, Shard],
    teach: bool,
) -> orders.ComposeWork:
    """`model`: the recipe as a plain sum; the order of its terms means nothing. `teach`: whether
    heads of the tasks that it adds are fitted under the result."""
    names = dict.fromkeys(term.vector.task for term in model.terms)
    taught = answering(model) if teach else ()
    merges = making.method in MERGES
    work = orders.ComposeWork(
        run_id="",
        base=base,
        user=model.user,
        terms=model.terms,
        making=making,
        tasks=tuple(
            orders.TaskRows(
                name=task.name,
                head_blob=first.head_blob,
                validation=task.submission.validation,
                train=task.submission.train if task.name in taught else None,
            )
            for task, first in _with_first(registry, names)
        ),
        probes=() if merges else tuple(shards[name] for name in names if name in shards),
    )
    parts = {
        "base": base.digest,
        "user": model.user,
        "model": model.digest,
        "making": making.model_dump(),
        "tasks": [[task.name, task.head_blob, task.validation.digest] for task in work.tasks],
        "probes": [[shard.task, shard.blob.digest] for shard in work.probes],
    }
    trained = [[task.name, task.train.digest] for task in work.tasks if task.train]
    parts |= {"heads": trained} if trained else {}
    return work.model_copy(update={"run_id": identity("compose", parts)})


def uses(work: orders.Work, task: str, purged: bool) -> bool:
    """Whether the work has to end when the task is removed. Models of removed tasks keep working
    until these are purged; a training continues without the samples."""
    if isinstance(work, orders.RefreshWork) and task in {shard.task for shard in work.others}:
        return True
    of_a_model = isinstance(work, orders.EvaluateWork | orders.ComposeWork)
    return task in orders.tasks_of(work) and (purged or not of_a_model)


def _with_first(registry: Registry, names: Collection[str]) -> list[tuple[TaskRecord, VectorRef]]:
    """These tasks, in this order, each with the vector of its training; includes removed tasks."""
    tasks = {task.name: task for task in registry.tasks(with_removed=True, names=names)}
    first = registry.first_references(names)
    return [(tasks[name], first[name]) for name in names]


def _before_refreshes(versions: Mapping[int, VectorRef], vector: VectorRef) -> VectorRef | None:
    """The version from which refreshes made `vector`; None if it was never refreshed."""
    first = vector
    while first.parent is not None:
        first = versions[first.parent]
    return first if first != vector else None


def _vector(registry: Registry, task: str, digest: str) -> VectorRef:
    return next(ref for ref in registry.references(task) if ref.digest == digest)
