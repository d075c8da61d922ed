"""What is told of vectors and models, read from the registry."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.coordinator.recipes import again
from cluster.coordinator.views import terms_of
from cluster.coordinator.work_orders import tasks_of
from cluster.domain import reports
from cluster.domain.base import PAGE
from cluster.domain.compositions import Composition
from cluster.domain.tasks import Arrival, VectorRef
from cluster.domain.visibility import Visibility
from cluster.domain.work import EvaluateWork, RefreshWork
from cluster.registry import Registry, Vector

VERSIONS = 4  # of vectors, in one answer
MET = 16  # samples that a listed version tells of, of those that it met


def vectors(
    registry: Registry, task: str | None, after: str, visibility: Visibility
) -> list[reports.VectorStatus]:
    """The next versions with what made them: of a task, or by task's name."""
    found: list[Vector] = []
    while len(found) < VERSIONS and (page := registry.vectors_after(task, after, VERSIONS)):
        found += (entry for entry in page if visibility.sees(entry.reference.task))
        after = page[-1].name
    champions = registry.champion_versions({entry.reference.task for entry in found})
    return [
        _vector(registry, entry, champions.get(entry.reference.task), visibility)
        for entry in found[:VERSIONS]
    ]


def _vector(
    registry: Registry, entry: Vector, champion: int | None, visibility: Visibility
) -> reports.VectorStatus:
    met = _arrivals(registry, entry.reference, visibility)
    return reports.VectorStatus(
        **entry.reference.model_dump(exclude={"accepted_metrics"}),
        champion=champion == entry.reference.version,
        norm=entry.norm,
        metrics=entry.reference.accepted_metrics,
        config=entry.config,
        curves=entry.curves,
        created=entry.created,
        arrivals=met[:MET],
        met=len(met),
    )


def _arrivals(
    registry: Registry, ref: VectorRef, visibility: Visibility
) -> tuple[reports.MetShard, ...]:
    """Against whose samples it was made: told one by one, or all at the beginning."""
    work = registry.run(ref.run_id).work
    if isinstance(work, RefreshWork):
        told = [Arrival(step=0, shard=shard) for shard in work.others]
    else:
        told = registry.arrivals(ref.run_id)
    return tuple(
        reports.MetShard(step=a.step, left=a.left, task=a.shard.task, version=a.shard.version)
        for a in told
        if visibility.sees(a.shard.task)
    )


def compare(
    registry: Registry, task: str, versions: tuple[int, int], visibility: Visibility
) -> reports.VectorComparison:
    """Two versions of a vector, and only what is different between them."""
    one, other = (_side(registry, task, version, visibility) for version in versions)
    different = {group: _different(one[group], other[group]) for group in one}
    return reports.VectorComparison(task=task, versions=versions, **different)


def _different(one: Mapping, other: Mapping) -> reports.Differences:
    pairs = {key: (one.get(key), other.get(key)) for key in sorted(one.keys() | other.keys())}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _side(
    registry: Registry, task: str, version: int, visibility: Visibility
) -> dict[str, Mapping]:
    """What is told of a version, as name -> value in the groups of VectorComparison."""
    registry.vector(task, version)
    (entry,) = registry.vectors(task, version)
    ref = entry.reference
    measured = {one.on: one.tau_jp for one in registry.effects(task, version)}
    met = _arrivals(registry, ref, visibility)
    return {
        "made": {"parent": ref.parent, "norm": entry.norm, "created": entry.created},
        "metrics": ref.accepted_metrics,
        "config": entry.config,
        "tau_jp": {on: value for on, value in measured.items() if visibility.sees(on)},
        "arrivals": {one.task: f"v{one.version} at step {one.step}" for one in met},
    }


def users(
    registry: Registry, visibility: Visibility, whose: str | None, after: str
) -> list[reports.UserModel]:
    """Models, and which of their tasks have a newer champion, or were removed: that of a user, or
    PAGE of those after a user's name."""
    seen = _models(registry, visibility, whose, after)
    tasks = {term.vector.task for model in seen for term in model.terms}
    newest, gone = registry.champion_versions(tasks), registry.removed_of(tasks)
    outdated = {model.user: _outdated(model, newest) for model in seen}
    asked = registry.asked([model for model in seen if outdated[model.user]])
    return [
        reports.UserModel(
            user=model.user,
            digest=model.digest,
            method=model.method,
            terms=terms_of(model),
            outdated=outdated[model.user],
            again=again(model, asked.get(model.user)) if outdated[model.user] else None,
            removed=tuple(sorted({term.vector.task for term in model.terms} & gone)),
        )
        for model in seen
    ]


def _models(
    registry: Registry, visibility: Visibility, whose: str | None, after: str
) -> list[Composition]:
    """Of what is seen, as many as there are or PAGE."""
    if whose is not None:
        found = registry.compositions(whose)
        return [model for model in found if visibility.sees_all(tasks_in(model))]
    seen: list[Composition] = []
    while len(seen) < PAGE and (page := registry.compositions_after(after)):
        seen += (model for model in page if visibility.sees_all(tasks_in(model)))
        after = page[-1].user
    return seen[:PAGE]


def tasks_in(model: Composition) -> set[str]:
    return {term.vector.task for term in model.terms}


def _outdated(model: Composition, newest: Mapping[str, int]) -> tuple[str, ...]:
    """Tasks whose champion is newer than the version in the model."""
    pinned = [term.vector for term in model.terms]
    return tuple(sorted({ref.task for ref in pinned if newest.get(ref.task, 0) > ref.version}))


def accuracy_history(
    registry: Registry, user: str | None, visibility: Visibility
) -> reports.AccuracyHistory:
    """Of this user's models, or of everybody's, in order of time: each model once, as it was
    measured last; of the latest PAGE evaluations."""
    known = [model.digest for model in registry.compositions(user)] if user else []
    rows: dict[str, reports.MeasuredModel] = {}
    for record, found in registry.evaluations(user, known):
        assert isinstance(record.work, EvaluateWork)
        model = record.work.composition
        if not visibility.sees_all(tasks_of(record.work)):
            continue
        assert record.ended is not None  # it is done
        rows[model.digest] = reports.MeasuredModel(
            digest=model.digest,
            user=model.user,
            terms=terms_of(model),
            method=model.method,
            at=record.ended,
            accuracies={task: row["composed"] for task, row in found.per_task.items()},
        )
    measured = {task for row in rows.values() for task in row.accuracies}
    return reports.AccuracyHistory(tasks=registry.by_arrival(measured), rows=tuple(rows.values()))
