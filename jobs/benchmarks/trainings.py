"""Calls about tasks that arrive and change, and of their learners."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.work import Lease, Leave, Progress, Refreshed, RefreshWork
from cluster.storage.samples import store_shard
from jobs.benchmarks.calls import NOBODY, Call, Turns, each


def trainings(asking: Turns, call: Coordinator) -> Iterator[Call]:
    """Submissions, and the calls of the first task's run."""
    population, rounds, begun = asking.population, asking.rounds, list[str]()
    blob = store_shard(population.home.blobs(), ["one", "other"], [False, True])
    run_id = call.submit(NOBODY, population.newcomer("first", blob)).run_id
    since = _version(call)

    def lease(row: int) -> Leave:
        progress = Progress(step=row, steps=rounds, loss=1.0, penalty=0.5)
        asked = Lease(run_id=run_id, first=row, last=row, since=row - 1, progress=progress)
        return call.lease(asked)

    def news(row: int) -> object:
        nonlocal since
        lease(heard + rounds + row)
        told = call.status(asking.whose[row], since)
        since = told.version
        return told

    def submit(row: int) -> object:
        told = call.submit(NOBODY, population.newcomer(asking.names[row], blob))
        begun.append(told.run_id)
        return told

    def first_lease(row: int) -> object:
        return call.lease(Lease(run_id=begun[row], first=0, last=0, since=-1))

    heard = 0
    while lease(heard).arrivals:  # lists all tasks, a page at a time
        heard += 1
    yield Call("learner", "lease", lambda row: lease(heard + row))
    yield Call("page", "a lease, and what is new", news)
    yield Call("user", "admit", each(call.admit, asking.whose, asking.names))
    yield Call("user", "submit", submit, rare=True)
    yield Call("learner", "the first lease", first_lease, rare=True)
    yield Call("user", "run", lambda row: call.run(NOBODY, run_id))
    yield Call("learner", "whether it is awaited", lambda _: call.is_current(run_id, 1))
    yield from _progress(asking, call)
    yield from _statistics(asking, call, run_id)


def _progress(asking: Turns, call: Coordinator) -> Iterator[Call]:
    """Of an evaluation, which makes no request before its rows."""
    run_id = call.evaluate(RequestContext(), asking.users[-1], True).run_id

    def report_progress(row: int) -> object:
        return call.report_progress(run_id, Progress(step=row, steps=asking.rounds), 1)

    yield Call("learner", "how far it is", report_progress)


def _statistics(asking: Turns, call: Coordinator, run_id: str) -> Iterator[Call]:
    """Of a training that shares statistics instead of samples."""
    blobs = asking.population.home.blobs()
    stored = [blobs.put(f"statistics {row}".encode()) for row in range(asking.rounds)]
    yield Call(
        "learner",
        "state statistics",
        lambda row: call.publish_statistics(run_id, stored[row], 1),
        rare=True,
    )


def _version(call: Coordinator) -> str:
    told = call.status(NOBODY)
    while told.more:
        told = call.status(NOBODY, told.version)
    return told.version


def changes(asking: Turns, call: Coordinator) -> Iterator[Call]:
    """Changes of existing tasks, and of submitted ones that have no vector yet."""
    tasks, names, admin = asking.tasks, asking.names, asking.admin
    blobs = asking.population.home.blobs()
    grown = [store_shard(blobs, [f"sample {row}"], [False]) for row in range(asking.rounds)]
    end = each(call.cancel, admin("end"), tasks)
    add = each(call.add_samples, asking.new("add"), tasks, grown)
    stop = each(call.cancel, admin("stop"), names, keep=True)
    purge = each(call.remove, admin("purge"), asking.seen[::-1], purge=True)
    yield Call("user", "move the champion", asking.moves(call.move_alias, "champion"))
    yield Call("user", "refresh", each(call.refresh, asking.new("refresh"), tasks), rare=True)
    yield Call("user", "cancel a refresh", end, rare=True)  # heads are fitted when idle
    refused = _refused(asking, call)
    yield Call("user", "what a refresh found", lambda _: call.refreshed(asking.whose[0], refused))
    yield Call("user", "add samples", add, rare=True)
    yield Call("user", "stop a training", stop, rare=True)
    yield Call("user", "retry", lambda row: call.retry(RequestContext(), names[row]), rare=True)
    yield Call("user", "cancel a task", each(call.cancel, admin("leave"), names), rare=True)
    half = len(asking.seen) // 2  # a small home has no more, and later calls need the rest
    yield Call("user", "purge", purge, rare=True, most=half)


def _refused(asking: Turns, call: Coordinator) -> str:
    """A finished refresh that was not accepted; returns the run's id."""
    population, own = asking.population, asking.population.shards[-1]
    work = RefreshWork(
        run_id="refused",
        base=population.base,
        vector=population.reference(own.ordinal, asking.versions),
        own=own,
        others=(),
        options=population.tasks[-1].submission.options,
    )
    found = Refreshed(accepted=False, reason="no gain", config={}, metrics={}, curves={})
    call._registry.add_run(work, own.task)
    call._registry.finish(work.run_id, found)
    return work.run_id
