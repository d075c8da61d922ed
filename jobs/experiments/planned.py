"""Refreshes as the coordinator plans them: `cluster/scheduler` decides what is measured and
refreshed, within the budget of arrivals; the work is done here, and each piece is a cell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from cluster.domain.tasks import GENERIC, Options
from cluster.learner.training import MEASURED
from cluster.scheduler import state as facts
from cluster.scheduler.budget import REMEASURED, allowance
from cluster.scheduler.plan import handle
from jobs.experiments.cache import Cost, Made, together
from jobs.experiments.context import Experiment
from jobs.experiments.models import TrainedVector, Vectors
from jobs.experiments.training import refreshed
from tacl.evaluation.interference import logit_change, tau_jp
from tacl.training.config import RefreshConfig


def planned(
    experiment: Experiment, vectors: Sequence[TrainedVector]
) -> Iterator[tuple[Vectors, Cost]]:
    """Yields, after the arrival of each vector in this order, the current vectors and the cost of
    measuring and refreshing. Each was trained against the generic samples and those before it."""
    plan = _Plan(experiment)
    for vector in vectors:
        cost = plan.arrive(vector)
        yield dict(plan.now), cost


class _Plan:
    """The coordinator's state, and the current vector of each task."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.now = experiment, dict[str, TrainedVector]()
        self._generic = experiment.suite.generics[0]
        self._state = facts.State(experiment.backbone.digest)
        self._asked = dict[str, facts.Instruction]()
        self._spent = list[Cost]()  # since the last arrival
        self._happens(facts.NodesChanged((facts.Node(1),)), self._arrived(GENERIC, Options(), 0))

    def arrive(self, vector: TrainedVector) -> Cost:
        """Add a vector and do all work that follows; returns its cost."""
        experiment, task = self.experiment, vector.task
        rows = experiment.rows(task).count("train")
        config = experiment.config(task)
        options = Options(steps=config.steps, batch=config.batch, penalty="cyclical")
        self.now[task], self._spent = vector, []
        samples = self._arrived(task, options, allowance(rows, options))
        urgency = facts.Urgency.TRAINING
        asked = facts.Requested(task, "train", task, facts.ONE_CPU, urgency)
        self._happens(samples, asked)
        return together(self._spent)

    def _happens(self, *known: facts.Event) -> None:
        """Handle these events and do the work that they cause, until nothing is left to do."""
        events = deque(known)
        while events:
            for one in handle(self._state, events.popleft()):
                if isinstance(one, facts.Start):
                    events.append(self._done(one.run_id, self._asked.get(one.run_id)))
                else:
                    self._asked[one.run_id] = one

    def _arrived(self, task: str, options: Options, most: int) -> facts.SamplesArrived:
        ordinal = len(self._state.tasks)
        known = facts.PlannedTask(ordinal, options, self._shard(task), allowance=most)
        return facts.SamplesArrived(task, known)

    def _done(self, run_id: str, work: facts.Instruction | None) -> facts.Event:
        match work:
            case None:  # a training, whose run id is the name of its task
                met = [name for name in self._state.tasks if name != run_id]
                seen = {self._shard(name) for name in met}
                return self._published(run_id, run_id, seen, [*met[-MEASURED:], run_id])
            case facts.Measure(cells=cells):
                measured = {cell: self._effect(cell.task, cell.on) for cell in cells}
                return facts.CellsMeasured(run_id, measured)
            case facts.RefreshChampion():
                return self._refresh(work)
            case facts.FitHeads():  # this table uses the heads of the training
                return facts.Ended(run_id)
            case _:
                raise AssertionError(f"nothing fails here: {work}")

    def _refresh(self, work: facts.RefreshChampion) -> facts.Event:
        task, others = work.task, [name for name, _ in work.others]
        before = self.now[task]
        met = [one for one in others if one != GENERIC]
        # These settings are those that the budget counts with.
        after = refreshed(self.experiment, before, met, RefreshConfig(seed=0))
        assert after.refresh is not None
        self._spent.append(after.refresh.cost)
        self.now[task] = after
        if after.key == before.key:  # not accepted
            return facts.Ended(work.run_id)
        seen = {*self._state.champions[task].seen, *(shard for _, shard in work.others)}
        return self._published(work.run_id, task, seen, [*others[-REMEASURED:], task])

    def _published(
        self, run_id: str, task: str, seen: set[str], measured: Sequence[str]
    ) -> facts.Event:
        row = {
            (on, self._shard(on), self._head(on, task)): self._effect(task, on) for on in measured
        }
        old = self._state.champions.get(task)
        vector = facts.VectorVersion(old.version + 1 if old else 1, self.now[task].key, seen)
        return facts.Published(run_id, task, vector, row, self._head(task, task))

    def _effect(self, task: str, on: str) -> facts.Effect:
        """The effect of the vector of a task on the probe rows of another."""
        experiment, vector, name = self.experiment, self.now[task], self._named(on)

        def make() -> Made:
            probe = experiment.rows(name).items("probe")
            cached = experiment.base.tangents(probe, {"tau": vector.tau()})
            tangent_ND = cached.tangents["tau"]
            change = None
            if on != GENERIC:
                change = logit_change(cached.features_ND, tangent_ND, experiment.head(on)).mean
            return {"tau_jp": tau_jp(tangent_ND).mean, "answers": change}, {}

        what, decides = f"of {task} on {name}", {"tau": vector.key, "answers": on != GENERIC}
        cell = experiment.cell("effect", make, what, name, data=self._shard(on), **decides)
        self._spent.append(cell.cost)
        return facts.Effect(cell.facts["tau_jp"], cell.facts["answers"])

    def _shard(self, task: str) -> str:
        return self.experiment.rows(self._named(task)).digest("shard")

    def _head(self, on: str, arriving: str) -> str:
        """A placeholder for the digest of a head: a task has its head from its first vector on."""
        known = self._state.tasks[on]
        return known.head or (f"head of {on}" if on == arriving else "")

    def _named(self, task: str) -> str:
        return self._generic if task == GENERIC else task
