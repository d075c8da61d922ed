"""What the coordinator tells people, as JSON-able dicts, read from the registry and the plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict

from cluster.coordinator.recipes import again
from cluster.coordinator.work_orders import tasks_of
from cluster.domain.compositions import Composition
from cluster.domain.methods import model_of
from cluster.domain.tasks import CHAMPION, Arrival, Pair, Shard, VectorRef
from cluster.domain.visibility import Sight
from cluster.domain.work import (
    Composed,
    ComposeWork,
    Evaluated,
    EvaluateWork,
    MeasureWork,
    RefreshWork,
    TrainWork,
    Work,
)
from cluster.registry import OWED, STOPPED, Registry, Run, Task
from cluster.scheduler.queue import free, reason
from cluster.scheduler.state import State
from tacl.compose.terms import Term
from tacl.evaluation.interference import HIGH_CHANGE, Matrix, MeanSize
from tacl.evaluation.interference import report as findings

Facts = dict[str, object]

TASK_STATES = {
    "queued": "queued",
    "running": "training",
    "done": "ready",
    "failed": "failed",
    "cancelled": "cancelled",
}
MAKING_STATES = {
    "queued": "queued",
    "running": "running",
    "done": "ready",
    "cancelled": "cancelled",
}
LEFT = (*OWED, *STOPPED)  # work that is owed, or that somebody may want to retry
UNSEEN = "it concerns a private task"


def status(registry: Registry, state: State, damaged: Mapping[str, str], sight: Sight) -> Facts:
    """Tasks by arrival; work that is no training and is owed or failed; room."""
    trainings = {record.run_id: record for record in registry.runs(kinds=("train",))}
    champions = {entry.reference.task: entry.reference for entry in registry.champions()}
    firsts = {entry.reference.task: entry.reference for entry in registry.vectors(version=1)}
    refreshes = {
        record.task: record.state for record in registry.runs(states=LEFT, kinds=("refresh",))
    }
    shards = {shard.task: shard for shard in registry.shards()}
    tasks = []
    for record in registry.tasks():
        name = record.name
        if not sight.of(name):
            continue
        facts = _task(record, trainings[record.run_id], state, sight)
        facts |= _vector_facts(champions.get(name), firsts.get(name))
        facts |= {"samples": shards[name].blob.rows, "refresh": refreshes.get(name)}
        if name in damaged:
            facts["reason"] = damaged[name]
        tasks.append(facts)
    awaited = registry.awaited()
    others = registry.runs(LEFT, kinds=("refresh", "measure", "evaluate", "compose"))
    work = [
        run(record, state, sight)
        for record in others
        if not _is_past(record, champions, awaited)
        and (record.task is None or sight.of(record.task))
        if not isinstance(record.work, ComposeWork) or sight.of_all(tasks_of(record.work))
    ]
    return {"tasks": tasks, "work": work, "room": room(state)}


def _is_past(record: Run, champions: Mapping[str, VectorRef], awaited: Collection[str]) -> bool:
    """A refresh that failed, of a vector that is no champion any more; a composition that failed
    or was cancelled, and that its user awaits no more."""
    if record.state not in STOPPED or not isinstance(record.work, RefreshWork | ComposeWork):
        return False
    if isinstance(record.work, ComposeWork):
        return record.run_id not in awaited
    return champions[record.work.vector.task].version != record.work.vector.version


def _task(record: Task, training: Run, state: State, sight: Sight) -> Facts:
    submission, facts = record.submission, run(training, state, sight)
    kept = ("run_id", "step", "steps", "loss", "penalty", "attempt", "reason", "started", "ended")
    return {
        "name": record.name,
        "owner": submission.owner,
        "private": submission.private,
        "state": TASK_STATES[training.state],
        **{name: facts[name] for name in kept},
        "created": record.created,
        "ordinal": record.ordinal,
        "modality": submission.modality,
        "classes": len(submission.classes),
        "rows": submission.train.rows,
        "options": submission.options.model_dump(),
    }


def _vector_facts(champion: VectorRef | None, first: VectorRef | None) -> Facts:
    trained = first.accepted_metrics if first else {}
    return {
        "version": champion.version if champion else None,
        "accuracy_before": trained.get("validation_zero_shot"),
        "accuracy_after": trained.get("validation_accuracy"),
        "metrics": champion.accepted_metrics if champion else {},
    }


def task_state(registry: Registry, state: State, task: Task) -> str:
    """A task's state in a sentence's end, with why."""
    training = registry.run(task.run_id)
    why = run(training, state, Sight(task.submission.owner, state.owners))["reason"]
    return TASK_STATES[training.state] + (f" ({why})" if why else "")


def whole_task(
    registry: Registry, state: State, task: Task, damaged: Mapping[str, str], sight: Sight
) -> Facts:
    """As in `status`, with what it was submitted as, its shards and every run that bears on it."""
    versions = [entry.reference for entry in registry.vectors(task.name)]
    champion = registry.aliases(task.name).get(CHAMPION)
    facts = _task(task, registry.run(task.run_id), state, sight)
    facts |= _vector_facts(
        next((ref for ref in versions if ref.version == champion), None),
        versions[0] if versions else None,
    )
    if task.name in damaged:
        facts["reason"] = damaged[task.name]
    facts["submission"] = task.submission.model_dump(mode="json")
    facts["shards"] = [shard.model_dump() for shard in registry.shards(task.name)]
    facts["runs"] = [run(record, state, sight) for record in registry.runs(task=task.name)]
    return facts


def run(record: Run, state: State, sight: Sight) -> Facts:
    """One run; `reason` says why it waits, or why it failed."""
    progress = record.progress
    return {
        "run_id": record.run_id,
        "kind": record.kind,
        "task": record.task,
        "about": about(record.work),
        "state": record.state,
        "step": _step(record),
        "steps": progress.steps if progress else None,
        "loss": progress.loss if progress else None,
        "penalty": progress.penalty if progress else None,
        "attempt": record.attempt,
        "reason": _reason(record, state, sight),
        "created": record.created,
        "started": record.started,
        "ended": record.ended,
    }


def _step(record: Run) -> int | None:
    """Steps done; rank 0 tells of them before each step, and so of the last one never."""
    if record.progress is None:
        return None
    return record.progress.steps if record.state == "done" else record.progress.step


def _reason(record: Run, state: State, sight: Sight) -> str | None:
    planned = state.runs.get(record.run_id)
    if record.cause and not sight.of_all(tasks_of(record.work)):
        return UNSEEN
    if record.state not in (*OWED, "done"):
        return record.cause
    waits = record.state == "queued" and planned is not None and planned.state == "queued"
    parts = [reason(state, planned, sight)] if waits and planned else []
    parts += [f"started again after: {record.cause}"] if record.cause else []
    return "; ".join(parts) or None


def about(work: Work) -> str:
    """A piece of work in a few words."""
    if isinstance(work, TrainWork):
        verb = "training" if work.submission.vector_blob is None else "importing"
        return f"{verb} {work.submission.name}"
    if isinstance(work, RefreshWork):
        return f"refreshing {work.vector.task}@v{work.vector.version}"
    if isinstance(work, MeasureWork):
        count = len(work.pairs)
        return f"measuring {count} pair{'s' if count > 1 else ''} of vector and task"
    if isinstance(work, ComposeWork):
        return f"composing by {work.making.method} the model of {work.user}"
    return f"evaluating the model of {work.composition.user}"


def vectors(registry: Registry, task: str | None, sight: Sight) -> list[Facts]:
    """Every version with what made it."""
    found = []
    names = {one.name for one in registry.tasks() if sight.of(one.name)}
    for entry in registry.vectors(task):
        ref = entry.reference
        if ref.task not in names:
            continue
        facts: Facts = ref.model_dump(exclude={"accepted_metrics"})
        facts |= {"champion": registry.aliases(ref.task).get(CHAMPION) == ref.version}
        facts |= {"norm": entry.norm, "metrics": ref.accepted_metrics, "config": entry.config}
        facts |= {"curves": entry.curves, "created": entry.created}
        facts["arrivals"] = _arrivals(registry, ref, sight)
        found.append(facts)
    return found


def _arrivals(registry: Registry, ref: VectorRef, sight: Sight) -> list[Facts]:
    """Against whose samples it was made: told one by one, or all at the beginning."""
    work = registry.run(ref.run_id).work
    if isinstance(work, RefreshWork):
        told = [Arrival(step=0, shard=shard) for shard in work.others]
    else:
        told = registry.arrivals(ref.run_id)
    return [
        {"step": a.step, "left": a.left, "task": a.shard.task, "version": a.shard.version}
        for a in told
        if sight.of(a.shard.task)
    ]


def compare(registry: Registry, task: str, versions: tuple[int, int], sight: Sight) -> Facts:
    """Two versions of a vector, and only what is different between them."""
    sides = [_side(registry, task, version, sight) for version in versions]
    found: Facts = {"task": task, "versions": list(versions)}
    for name in sides[0]:
        one, other = (side[name] for side in sides)
        keys = sorted(one.keys() | other.keys())
        pairs = {key: [one.get(key), other.get(key)] for key in keys}
        found[name] = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    return found


def _side(registry: Registry, task: str, version: int, sight: Sight) -> dict[str, Facts]:
    """What is told of a version, as name -> value in four groups."""
    registry.vector(task, version)
    (entry,) = registry.vectors(task, version)
    ref = entry.reference
    measured = {pair.on: pair.tau_jp for pair in registry.pairs(task, version)}
    met = _arrivals(registry, ref, sight)
    return {
        "made": {"parent": ref.parent, "norm": entry.norm, "created": entry.created},
        "metrics": dict(ref.accepted_metrics),
        "config": dict(entry.config),
        "tau_jp": {on: value for on, value in measured.items() if sight.of(on)},
        "arrivals": {str(one["task"]): f"v{one['version']} at step {one['step']}" for one in met},
    }


def interference(registry: Registry, shards: Mapping[str, Shard]) -> Facts:
    """The matrix of the champions on the current shards, in order of arrival."""
    arrival = sorted(shards.values(), key=lambda shard: shard.ordinal)
    on = [shard.task for shard in arrival]
    champions = {entry.reference.task: entry for entry in registry.champions()}
    names = [name for name in on if name in champions]
    current = {name: (shard.blob.digest, shard.head) for name, shard in shards.items()}
    pairs = {
        (pair.task, pair.on): pair
        for pair in registry.champion_pairs()
        if current.get(pair.on) == (pair.shard_digest, pair.head)
    }
    known = {(s, t): pairs[s, t] for s in names for t in on if (s, t) in pairs}
    matrix, logits = _matrices(known)
    tasks = registry.tasks()
    withheld = {one.name for one in tasks if one.submission.options.share != "samples"}
    wanted = [(s, t) for s in names for t in on if s == t or t not in withheld]
    norms = {name: norm for name in names if (norm := champions[name].norm) is not None}
    return {
        "vectors": [
            {"task": name, "version": champions[name].reference.version, "norm": norms.get(name)}
            for name in names
        ],
        "on": on,
        "raw": [[matrix.raw(s, t) for t in on] for s in names],
        "standard_error": [
            [pairs[s, t].standard_error if (s, t) in pairs else None for t in on] for s in names
        ],
        "relative": _relative(matrix, names, on),
        "logits": _relative(logits, names, on),
        "high": HIGH_CHANGE,
        "missing": sum((s, t) not in pairs for s, t in wanted),
        "findings": [asdict(finding) for finding in findings(logits, norms)],
    }


def _matrices(pairs: Mapping[tuple[str, str], Pair]) -> tuple[Matrix, Matrix]:
    """Of tau_jp, and of the changes of logits."""
    sizes = {k: MeanSize(pair.tau_jp, pair.standard_error, pair.rows) for k, pair in pairs.items()}
    changes = {
        k: MeanSize(pair.logits, pair.logits_error, pair.rows)
        for k, pair in pairs.items()
        if pair.logits is not None and pair.logits_error is not None
    }
    return Matrix(sizes), Matrix(changes)


def _relative(matrix: Matrix, names: list[str], on: list[str]) -> list[list[float | None]]:
    rows = [[matrix.relative(s, t) for t in on] for s in names]
    return [[ratio.value if ratio else None for ratio in row] for row in rows]


def terms_of(model: Composition) -> list[str]:
    """As they were written, with the versions they were pinned to."""
    return [str(Term(t.coefficient, t.vector.task, t.vector.version)) for t in model.terms]


def making(registry: Registry, record: Run, state: State, sight: Sight) -> Facts:
    """How it is with a composition that is being made: {run_id, user, method, terms, state: queued
    | running | ready | failed | cancelled, step, steps, loss, reason, attempt, created, started,
    ended, model and report once ready}."""
    work = record.work
    assert isinstance(work, ComposeWork)
    facts = run(record, state, sight)
    kept = ("run_id", "step", "steps", "loss", "attempt", "reason", "created", "started", "ended")
    asked = Composition(digest="", user=work.user, terms=work.terms)
    found = registry.result(record.run_id) if record.state == "done" else None
    done = None if found is None else Composed.model_validate(found)
    return {
        **{name: facts[name] for name in kept},
        "user": work.user,
        "method": work.making.method,
        "terms": terms_of(asked),
        "state": MAKING_STATES.get(record.state, "failed"),
        "model": done and model_of(work, done).model_dump(mode="json"),
        "report": done and done.report.model_dump(mode="json"),
    }


def users(registry: Registry, sight: Sight) -> list[Facts]:
    """Every user's model, and which of its tasks have a newer champion, or were removed."""
    seen = [m for m in registry.compositions() if sight.of_all(t.vector.task for t in m.terms)]
    newest = {entry.reference.task: entry.reference.version for entry in registry.champions()}
    outdated = {model.user: _outdated(model, newest) for model in seen}
    asked = registry.asked([model for model in seen if outdated[model.user]])
    gone = {one.name for one in registry.tasks(with_removed=True) if one.removed}
    found = []
    for model in seen:
        facts: Facts = {"user": model.user, "digest": model.digest, "method": model.method}
        facts |= {"terms": terms_of(model), "outdated": (newer := outdated[model.user])}
        facts["again"] = again(model, asked.get(model.user)) if newer else None
        facts["removed"] = sorted({term.vector.task for term in model.terms} & gone)
        found.append(facts)
    return found


def _outdated(model: Composition, newest: Mapping[str, int]) -> list[str]:
    """Tasks whose champion is newer than the version in the model."""
    pinned = [term.vector for term in model.terms]
    return sorted({ref.task for ref in pinned if newest.get(ref.task, 0) > ref.version})


def evaluations(registry: Registry, user: str, sight: Sight) -> Facts:
    """The accuracies of this user's models, in order of time: each model once."""
    known = {model.digest for model in registry.compositions(user)}
    rows: dict[str, Facts] = {}
    measured: set[str] = set()
    for record in registry.runs(states=("done",), kinds=("evaluate",)):
        assert isinstance(record.work, EvaluateWork)
        model = record.work.composition
        own = model.user == user or model.digest in known
        if own and sight.of_all(tasks_of(record.work)):
            found = Evaluated.model_validate(registry.result(record.run_id))
            shares = {task: row["composed"] for task, row in found.per_task.items()}
            facts: Facts = {"digest": model.digest, "terms": terms_of(model)}
            facts["method"] = model.method
            rows[model.digest] = facts | {"at": record.ended, "accuracies": shares}
            measured |= shares.keys()
    tasks = [one.name for one in registry.tasks(with_removed=True) if one.name in measured]
    return {"tasks": tasks, "rows": list(rows.values())}


def room(state: State) -> Facts:
    """What the cluster has, and what no run has reserved."""
    left = free(state)
    return {
        "nodes": [node._asdict() for node in state.nodes],
        "cpus": sum(node.cpus for node in state.nodes),
        "free_cpus": max(0, left.cpus),
        "gpus": sum(node.gpus for node in state.nodes),
        "free_gpus": max(0, left.gpus),
    }
