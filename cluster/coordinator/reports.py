"""What is told of vectors and models, read from the registry."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict

from cluster.coordinator.recipes import again
from cluster.coordinator.views import terms_of
from cluster.coordinator.work_orders import tasks_of
from cluster.domain.base import PAGE
from cluster.domain.compositions import Composition
from cluster.domain.reports import (
    AccuracyHistory,
    Differences,
    InterferenceFinding,
    InterferenceReport,
    MeasuredModel,
    MeasuredVector,
    MetShard,
    Table,
    UserModel,
    VectorComparison,
    VectorStatus,
)
from cluster.domain.tasks import Arrival, Pair, Shard, VectorRef
from cluster.domain.visibility import Visibility
from cluster.domain.work import EvaluateWork, RefreshWork
from cluster.registry import Registry, Vector
from tacl.evaluation.interference import HIGH_CHANGE, Matrix, MeanSize
from tacl.evaluation.interference import report as findings

VERSIONS = 4  # of vectors, in one answer
MET = 16  # samples that a listed version tells of, of those that it met


def vectors(
    registry: Registry, task: str | None, after: str, visibility: Visibility
) -> list[VectorStatus]:
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
) -> VectorStatus:
    met = _arrivals(registry, entry.reference, visibility)
    return VectorStatus(
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


def _arrivals(registry: Registry, ref: VectorRef, visibility: Visibility) -> tuple[MetShard, ...]:
    """Against whose samples it was made: told one by one, or all at the beginning."""
    work = registry.run(ref.run_id).work
    if isinstance(work, RefreshWork):
        told = [Arrival(step=0, shard=shard) for shard in work.others]
    else:
        told = registry.arrivals(ref.run_id)
    return tuple(
        MetShard(step=a.step, left=a.left, task=a.shard.task, version=a.shard.version)
        for a in told
        if visibility.sees(a.shard.task)
    )


def compare(
    registry: Registry, task: str, versions: tuple[int, int], visibility: Visibility
) -> VectorComparison:
    """Two versions of a vector, and only what is different between them."""
    one, other = (_side(registry, task, version, visibility) for version in versions)
    different = {group: _different(one[group], other[group]) for group in one}
    return VectorComparison(task=task, versions=versions, **different)


def _different(one: Mapping, other: Mapping) -> Differences:
    pairs = {key: (one.get(key), other.get(key)) for key in sorted(one.keys() | other.keys())}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _side(
    registry: Registry, task: str, version: int, visibility: Visibility
) -> dict[str, Mapping]:
    """What is told of a version, as name -> value in the groups of VectorComparison."""
    registry.vector(task, version)
    (entry,) = registry.vectors(task, version)
    ref = entry.reference
    measured = {pair.on: pair.tau_jp for pair in registry.pairs(task, version)}
    met = _arrivals(registry, ref, visibility)
    return {
        "made": {"parent": ref.parent, "norm": entry.norm, "created": entry.created},
        "metrics": ref.accepted_metrics,
        "config": entry.config,
        "tau_jp": {on: value for on, value in measured.items() if visibility.sees(on)},
        "arrivals": {one.task: f"v{one.version} at step {one.step}" for one in met},
    }


def interference(
    registry: Registry, shards: Mapping[str, Shard], shared: Collection[str]
) -> InterferenceReport:
    """The matrix of the champions on these shards, in order of arrival. `shared`: of which tasks
    the samples are; on others only the own vector is measured."""
    arrival = sorted(shards.values(), key=lambda shard: shard.ordinal)
    on = [shard.task for shard in arrival]
    champions = {entry.reference.task: entry for entry in registry.champions(on)}
    names = [name for name in on if name in champions]
    current = {name: (shard.blob.digest, shard.head) for name, shard in shards.items()}
    pairs = {
        (pair.task, pair.on): pair
        for pair in registry.champion_pairs(on)
        if current.get(pair.on) == (pair.shard_digest, pair.head)
    }
    known = {(s, t): pairs[s, t] for s in names for t in on if (s, t) in pairs}
    matrix, logits = _matrices(known)
    wanted = [(s, t) for s in names for t in on if s == t or t in shared]
    norms = {name: norm for name in names if (norm := champions[name].norm) is not None}
    return InterferenceReport(
        vectors=tuple(
            MeasuredVector(
                task=name, version=champions[name].reference.version, norm=norms.get(name)
            )
            for name in names
        ),
        on=tuple(on),
        raw=tuple(tuple(matrix.raw(s, t) for t in on) for s in names),
        standard_error=tuple(
            tuple(pairs[s, t].standard_error if (s, t) in pairs else None for t in on)
            for s in names
        ),
        relative=_relative(matrix, names, on),
        logits=_relative(logits, names, on),
        high=HIGH_CHANGE,
        missing=sum(pair not in pairs for pair in wanted),
        findings=tuple(InterferenceFinding(**asdict(one)) for one in findings(logits, norms)),
    )


def _matrices(pairs: Mapping[tuple[str, str], Pair]) -> tuple[Matrix, Matrix]:
    """Of tau_jp, and of the changes of logits."""
    sizes = {k: MeanSize(pair.tau_jp, pair.standard_error, pair.rows) for k, pair in pairs.items()}
    changes = {
        k: MeanSize(pair.logits, pair.logits_error, pair.rows)
        for k, pair in pairs.items()
        if pair.logits is not None and pair.logits_error is not None
    }
    return Matrix(sizes), Matrix(changes)


def _relative(matrix: Matrix, names: list[str], on: list[str]) -> Table:
    rows = [[matrix.relative(s, t) for t in on] for s in names]
    return tuple(tuple(ratio.value if ratio else None for ratio in row) for row in rows)


def users(
    registry: Registry, visibility: Visibility, whose: str | None, after: str
) -> list[UserModel]:
    """Models, and which of their tasks have a newer champion, or were removed: that of a user, or
    PAGE of those after a user's name."""
    seen = _models(registry, visibility, whose, after)
    tasks = {term.vector.task for model in seen for term in model.terms}
    newest, gone = registry.champion_versions(tasks), registry.removed_of(tasks)
    outdated = {model.user: _outdated(model, newest) for model in seen}
    asked = registry.asked([model for model in seen if outdated[model.user]])
    return [
        UserModel(
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
) -> AccuracyHistory:
    """Of this user's models, or of everybody's, in order of time: each model once, as it was
    measured last; of the latest PAGE evaluations."""
    known = [model.digest for model in registry.compositions(user)] if user else []
    rows: dict[str, MeasuredModel] = {}
    for record, found in registry.evaluations(user, known):
        assert isinstance(record.work, EvaluateWork)
        model = record.work.composition
        if not visibility.sees_all(tasks_of(record.work)):
            continue
        assert record.ended is not None  # it is done
        rows[model.digest] = MeasuredModel(
            digest=model.digest,
            user=model.user,
            terms=terms_of(model),
            method=model.method,
            at=record.ended,
            accuracies={task: row["composed"] for task, row in found.per_task.items()},
        )
    measured = {task for row in rows.values() for task in row.accuracies}
    return AccuracyHistory(tasks=registry.by_arrival(measured), rows=tuple(rows.values()))
