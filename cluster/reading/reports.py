"""Reports on vectors and models, read from the registry."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, islice

from cluster.domain import reports
from cluster.domain.base import PAGE
from cluster.domain.compositions import Composition
from cluster.domain.status import Event
from cluster.domain.tasks import VectorRef
from cluster.domain.work import EvaluateWork, MeasuredAccuracies, tasks_of
from cluster.reading.asker_view import AskerView
from cluster.reading.models import named_once, recompose_command, tasks_in
from cluster.registry import Met, Registry, VectorRecord

BYTES = 16_000  # of vectors in one answer; a version that has more is returned alone
READ = 5_000  # samples that they met: all are read, to report those that are seen
AT_ONCE = 16  # versions that are read together
MET = 16  # samples that a listed version names, of those that it met


def vectors(view: AskerView, task: str | None, after: str) -> list[reports.VectorStatus]:
    """The next versions with what made them: of one task, or of all, by task's name and without
    curves. How many they are depends only on what the viewer sees."""
    found, size, read = list[reports.VectorStatus](), 1, 0
    while page := _page(view.registry, task, after):
        for one in _statuses(view, page):
            size += len(one.model_dump_json().encode()) + 1  # a comma, or a bracket
            read += one.met
            if found and (size > BYTES or read > READ):
                return found
            found.append(one)
        after = page[-1].reference.name
    return found


def _page(registry: Registry, task: str | None, after: str) -> list[VectorRecord]:
    """As many versions as met READ samples together, or one: few met as many as there are tasks."""
    page = registry.vectors_after(task, after, AT_ONCE)
    counts = registry.met_counts([one.reference.run_id for one in page])
    met = accumulate(counts[one.reference.run_id] for one in page)
    return page[: max(1, sum(count <= READ for count in met))]


def _statuses(view: AskerView, page: Sequence[VectorRecord]) -> Iterator[reports.VectorStatus]:
    seen = [entry for entry in page if view.visibility.sees(entry.reference.task)]
    champions = view.registry.champion_versions({entry.reference.task for entry in seen})
    met = _met(view, [entry.reference for entry in seen])
    for entry in seen:
        ref = entry.reference
        yield _vector(entry, champions.get(ref.task) == ref.version, met[ref.run_id])


def _vector(entry: VectorRecord, champion: bool, met: Sequence[Met]) -> reports.VectorStatus:
    return reports.VectorStatus(
        **entry.reference.model_dump(exclude={"accepted_metrics"}),
        champion=champion,
        norm=entry.norm,
        metrics=entry.reference.accepted_metrics,
        config=entry.config,
        curves=entry.curves,
        created=entry.created,
        arrivals=tuple(reports.MetShard(**one._asdict()) for one in met[:MET]),
        met=len(met),
    )


def _met(view: AskerView, refs: Sequence[VectorRef]) -> dict[str, list[Met]]:
    """By the run that made each version, the samples that it met and the viewer sees."""
    found = view.registry.met([ref.run_id for ref in refs])
    sees = view.visibility.sees
    return {run_id: [one for one in met if sees(one.task)] for run_id, met in found.items()}


def compare(view: AskerView, task: str, versions: tuple[int, int]) -> reports.VectorComparison:
    """Two versions of a vector, with only what differs between them."""
    one, other = (_side(view, task, version) for version in versions)
    different = {group: _different(one[group], other[group]) for group in one}
    return reports.VectorComparison(task=task, versions=versions, **different)


def _different(one: Mapping, other: Mapping) -> reports.Differences:
    pairs = {key: (one.get(key), other.get(key)) for key in sorted(one.keys() | other.keys())}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _side(view: AskerView, task: str, version: int) -> dict[str, Mapping]:
    """What is reported of a version, as name -> value in the groups of VectorComparison."""
    view.registry.vector(task, version)
    (entry,) = view.registry.vectors(task, version)
    ref = entry.reference
    measured = {one.on: one.tau_jp for one in view.registry.effects(task, version)}
    met = _met(view, [ref])[ref.run_id]
    return {
        "made": {"parent": ref.parent, "norm": entry.norm, "created": entry.created},
        "metrics": ref.accepted_metrics,
        "config": entry.config,
        "tau_jp": {on: value for on, value in measured.items() if view.visibility.sees(on)},
        "arrivals": {one.task: f"v{one.version} at step {one.step}" for one in met},
    }


def users(view: AskerView, whose: str | None, after: str) -> list[reports.UserModel]:
    """Models, with their tasks that have a newer champion or were removed: that of one user, or
    PAGE of those after a user's name."""
    seen, registry = _models(view, whose, after), view.registry
    tasks = {term.vector.task for model in seen for term in model.terms}
    newest = registry.champion_versions(tasks)
    gone = tasks - newest.keys()  # a task with a vector has a champion, until it is removed
    outdated = {model.user: _outdated(model, newest) for model in seen}
    lost = {model.user: tasks_in(model) & gone for model in seen}
    anew = [model for model in seen if outdated[model.user] or lost[model.user]]
    asked = registry.requested_work(anew)
    how = {one.user: recompose_command(one, asked.get(one.user), lost[one.user]) for one in anew}
    erased = _erasures(registry, gone & registry.purged() if gone else gone)
    return [
        reports.UserModel(
            user=model.user,
            digest=model.digest,
            method=model.method,
            terms=tuple(map(str, model.terms)),
            outdated=outdated[model.user],
            again=how.get(model.user),
            removed=tuple(sorted(lost[model.user])),
            purged=tuple(erased[task] for task in sorted(lost[model.user] & erased.keys())),
        )
        for model in seen
    ]


def _erasures(registry: Registry, purged: Collection[str]) -> dict[str, Event]:
    """By task, the event that erased it."""
    found = (one for task in purged for one in registry.events(task) if one.kind == "purged")
    return {one.task: one for one in found if one.task}


def _models(view: AskerView, whose: str | None, after: str) -> list[Composition]:
    """Models that the viewer sees: that of one user, or the next PAGE."""
    registry, visibility = view.registry, view.visibility
    if whose is not None:
        found = registry.compositions(whose)
        return [model for model in found if visibility.sees_all(tasks_in(model))]
    seen: list[Composition] = []
    while len(seen) < PAGE and (page := registry.compositions_after(after)):
        seen += (model for model in page if visibility.sees_all(tasks_in(model)))
        after = page[-1].user
    return seen[:PAGE]


def _outdated(model: Composition, newest: Mapping[str, int]) -> tuple[str, ...]:
    """Tasks whose champion is newer than the version in the model. One that occurs twice is not
    among them: it keeps its versions."""
    once = named_once(model.terms)
    pinned = [term.vector for term in model.terms if term.vector.task in once]
    return tuple(sorted({ref.task for ref in pinned if newest.get(ref.task, 0) > ref.version}))


def _each(found: MeasuredAccuracies, kind: str) -> dict[str, float]:
    """The accuracies of this kind, of every task for which it was measured."""
    shares = {task: getattr(row, kind) for task, row in found.per_task.items()}
    return {task: share for task, share in shares.items() if share is not None}


def accuracy_history(view: AskerView, user: str | None) -> reports.AccuracyHistory:
    """Accuracies of this user's models, or of everybody's, by time: each model once, as it was
    measured last. They are from the latest PAGE evaluations that the viewer sees."""
    registry = view.registry
    known = [model.digest for model in registry.compositions(user)] if user else []
    every, sees = registry.evaluations(user, known), view.visibility.sees_all
    seen = (one for one in every if sees(tasks_of(one[0].work)))
    rows: dict[str, reports.MeasuredModel] = {}
    for record, found in reversed([*islice(seen, PAGE)]):
        assert isinstance(record.work, EvaluateWork)
        model = record.work.composition
        assert record.ended is not None  # it is done
        rows.pop(model.digest, None)  # a model that is measured again comes later
        rows[model.digest] = reports.MeasuredModel(
            digest=model.digest,
            user=user or model.user,  # users with the same model share its evaluation
            terms=tuple(map(str, model.terms)),
            method=model.method,
            at=record.ended,
            accuracies=_each(found, "composed"),
            unknowns=_each(found, "unknown"),
            frozen=_each(found, "frozen_known"),
            absolute=found.absolute,
            unknown=found.unknown,
            frozen_known=found.frozen_known,
            frozen_unknown=found.frozen_unknown,
        )
    measured = {task for row in rows.values() for task in row.accuracies}
    return reports.AccuracyHistory(tasks=registry.by_arrival(measured), rows=tuple(rows.values()))
