"""A plan's state and the events that it handles; every instruction and invariant is checked."""

from __future__ import annotations

from cluster.domain.status import OF_MODELS, RunKind
from cluster.domain.tasks import GENERIC, Options
from cluster.scheduler import matrix
from cluster.scheduler.loudest import shares_of
from cluster.scheduler.plan import handle, validate
from cluster.scheduler.queue import needs_of, placeable, reason, urgency_of, waits_for
from cluster.scheduler.state import (
    ONE_CPU,
    CellsMeasured,
    Died,
    Effect,
    Ended,
    Event,
    Fail,
    Failed,
    FitHeads,
    Instruction,
    MatrixCell,
    Measure,
    Needs,
    Node,
    NodesChanged,
    PlaceGivenBack,
    PlannedRun,
    PlannedTask,
    Published,
    RefreshChampion,
    Requested,
    Requeue,
    RunEvent,
    SamplesArrived,
    Start,
    State,
    Stop,
    VectorVersion,
)
from cluster.scheduler.upkeep import ONCE, is_due

PLENTY = 1_000_000  # more than any arrival of a test costs
NEVER, ON_ARRIVAL = (Options(refresh=when, heads="trained") for when in ("never", "on_arrival"))


def values_of(run: PlannedRun, tau: float) -> dict[MatrixCell, Effect]:
    """Results of a measurement: a vector changes its own inputs by 1, all others by `tau`."""
    sizes = {cell: 1.0 if cell.task == cell.on else tau for cell in run.cells}
    return {cell: Effect(size, size if cell.head else None) for cell, size in sizes.items()}


def assert_all_due_are_asked(state: State) -> None:
    """No vector is due that is not marked in `ask`: events examine no others."""
    assert not [task for task in state.champions.keys() - state.ask if is_due(state, task)]


def _leaves(run: PlannedRun, event: Event) -> bool:
    """Whether the run is no longer needed for decisions."""
    if isinstance(event, Published | CellsMeasured | Ended):
        return run.kind not in ONCE
    return run.state == "failed" and run.kind in OF_MODELS


class World:
    """A state, and the runs that were started and have not ended. Checks every instruction."""

    def __init__(self, *nodes: Node, allowance: int = PLENTY) -> None:
        self.allowance = allowance
        self.state = State("base")
        self.accepted: set[str] = set()
        self.running: set[str] = set()
        self.said: list[Instruction] = []
        self.happens(SamplesArrived(GENERIC, PlannedTask(0, NEVER, "generic 1")))
        self.happens(NodesChanged(nodes))

    def happens(self, event: Event) -> list[Instruction]:
        if isinstance(event, Requested):
            self.accepted.add(event.run_id)
        if isinstance(event, Published | CellsMeasured | Ended | Died | Failed | PlaceGivenBack):
            self.running.remove(event.run_id)
        run = self.state.runs.get(event.run_id) if isinstance(event, RunEvent) else None
        said = handle(self.state, event)
        for instruction in said:
            self._check(instruction)
        self.said += said
        if run is not None and _leaves(run, event):
            self.accepted.remove(run.run_id)
        validate(self.state)
        assert_all_due_are_asked(self.state)
        self._check_matrix()
        bounds, rows = self.state.loudest, self.state.rows
        assert bounds.keys() == rows.keys()
        assert all(
            pair.share <= bounds[pair.task] for one in rows for pair in shares_of(self.state, one)
        )
        assert self.accepted == self.state.runs.keys() | self.state.done
        running = {run.run_id for run in self.state.runs.values() if run.state == "running"}
        assert self.running == running
        return said

    def _check_matrix(self) -> None:
        """The columns, marks and other derived state agree with the rows."""
        rows, columns, marks = self.state.rows, self.state.columns, dict(self.state.marks)
        assert {(t, on) for t, row in rows.items() for on in row} == {
            (t, on) for on, tasks in columns.items() for t in tasks
        }
        self.state.marks.clear()
        assert all(matrix.mark(self.state, task) == mark for task, mark in marks.items())
        assert self.state.promoted.keys() == self.state.champions.keys()

    def _check(self, instruction: Instruction) -> None:
        match instruction:
            case Measure(run_id) | RefreshChampion(run_id) | FitHeads(run_id):
                assert run_id not in self.state.done
                self.accepted.add(run_id)
            case Start(run_id, needs):
                assert run_id in self.accepted, "started before it was accepted"
                assert run_id not in self.running, "started twice"
                assert placeable(self.state.nodes, needs)
                self.running.add(run_id)
                self.state.runs[run_id].cost = 0  # as it was recorded
            case Requeue(run_id) | Fail(run_id):
                assert run_id in self.accepted
            case Stop(run_id):
                self.running.discard(run_id)

    def submit(self, task: str, options: Options = NEVER, user: str | None = None) -> None:
        """Add a task's samples and request its training."""
        ordinal = len(self.state.tasks)
        known = PlannedTask(ordinal, options, f"{task} 1", allowance=self.allowance)
        self.happens(SamplesArrived(task, known))
        self.request(f"train {task}", "train", task, needs_of("train", options), user)

    def request(
        self,
        run_id: str,
        kind: RunKind,
        task: str | None = None,
        needs: Needs = ONE_CPU,
        user: str | None = None,
    ) -> list[Instruction]:
        return self.happens(Requested(run_id, kind, task, needs, urgency_of(kind, user=user), user))

    def publish(
        self, run_id: str, tau: float = 0.0, measured: bool = True, near: tuple[str, ...] = ()
    ) -> None:
        """Publish the run's vector, which changes all other inputs by `tau` and its own by 1.
        `near`: tasks whose samples are of the same kind."""
        task = self.state.runs[run_id].task
        assert task is not None
        version = self.state.champions[task].version + 1 if task in self.state.champions else 1
        heads = {name: known.head for name, known in self.state.tasks.items()}
        heads[task] = f"head of {task}"
        known = {(name, known.shard, heads[name]) for name, known in self.state.tasks.items()}
        seen = frozenset(shard for name, shard, _ in known if name != task)
        sizes = {key: 1.0 if key[0] == task else tau for key in known if measured}
        row = {key: Effect(size, size if key[2] else None) for key, size in sizes.items()}
        vector = VectorVersion(version, f"{task} v{version}", seen)
        row = {key: effect for key, effect in row.items() if key[0] not in near}
        self.happens(Published(run_id, task, vector, row, heads[task], near=near))

    def measure(self, tau: float = 0.0) -> None:
        """Finish a measurement that runs."""
        runs = (self.state.runs[run_id] for run_id in sorted(self.running))
        run = next(run for run in runs if run.kind == "measure")
        self.happens(CellsMeasured(run.run_id, values_of(run, tau)))

    def trained(self, *tasks: str, options: Options = NEVER) -> World:
        for task in tasks:
            self.submit(task, options)
            self.publish(f"train {task}")
            while any(run.kind == "measure" for run in self.state.runs.values()):
                self.measure()
        return self

    @property
    def giving_way(self) -> set[str]:
        """The runs that are to give way."""
        return {run.run_id for run in self.state.runs.values() if run.gives_way}

    def give_way(self) -> set[str]:
        """Let the runs that are to give way do so; returns their ids."""
        told = self.giving_way
        for run_id in sorted(told):
            self.happens(PlaceGivenBack(run_id))
        return told

    def why(self, run_id: str) -> str:
        return reason(self.state, self.state.runs[run_id])

    def waits_for(self, run_id: str) -> str:
        return waits_for(self.state, self.state.runs[run_id])

    def state_of(self, run_id: str) -> str:
        return self.state.runs[run_id].state
