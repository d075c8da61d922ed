"""The trainings of an experiment: single vectors, all tasks together, refreshes. Each is a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jobs.experiments.cache import Cost, Made, together
from jobs.experiments.context import Experiment
from jobs.experiments.models import KeptDirection, TrainedVector
from tacl.curvature.statistics import FORMAT
from tacl.data.batches import Labelled
from tacl.heads.head import RowLoss, union
from tacl.heads.joint import JointHead, joint_data
from tacl.training.config import RefreshConfig, TrainConfig
from tacl.training.loop import PlainEngine, StepRecord, Store, train
from tacl.training.refresh import refresh
from tacl.vectors import Params, Regime, params

TOLD = 50  # steps between two lines about a training


def trained(
    experiment: Experiment,
    task: str,
    others: Sequence[str] = (),
    most: int | None = None,
    regime: Regime = "linearized",
    start: TrainedVector | None = None,
    **changed: Any,
) -> TrainedVector:
    """The vector of a task, with the tauJp penalty on the samples of `others` if there are any.

    `most` bounds the samples of every other task; training starts from `start`, or from 0;
    `changed` are fields of TrainConfig.
    """
    rows = experiment.rows(task)
    settings = {"penalty": "cyclical" if others else "none", **_precision(regime), **changed}
    config = experiment.config(task, **settings)

    def make() -> Made:
        stores = [experiment.store(other, most) for other in others]
        if config.penalty == "curvature":
            stores = [replace(s, statistics=experiment.statistics(s.name)) for s in stores]
        tau = start.tau() if start else {}
        return _run(
            experiment, regime, task, experiment.head(task), rows.train, config, stores, tau
        )

    # Statistics are not a cell of their own: the key has the format that they are measured in.
    statistics = {"statistics": FORMAT} if config.penalty == "curvature" else {}
    cell = experiment.cell(
        "vector",
        make,
        f"of {task}, {_told(regime, config, others)}",
        task,
        regime=regime,
        config=config.as_dict(),
        data=[rows.digest("train"), list(rows.classes)],
        others=[[experiment.rows(other).digest("shard"), most] for other in others],
        relative=experiment.suite.relative,
        **statistics,
        start=start.key if start else None,
    )
    return TrainedVector(cell, regime, task, cell.cost, Cost())


def joint(
    experiment: Experiment, regime: Regime, one_softmax: bool = False, **changed: Any
) -> KeptDirection:
    """One vector for all tasks (MTL), from as many rows as all the single trainings together; each
    row is judged among the classes of its task or, with `one_softmax`, among those of all.
    `changed` are fields of TrainConfig."""
    rows = [experiment.rows(task) for task in experiment.pool]
    settings = {"penalty": "none", **_precision(regime), **changed}
    configs = [experiment.config(task, **settings) for task in experiment.pool]
    config = replace(configs[0], steps=sum(one.steps for one in configs))

    def make() -> Made:
        heads = [experiment.head(task) for task in experiment.pool]
        data = joint_data([one.train for one in rows], heads)
        loss = union(heads) if one_softmax else JointHead.of(heads)
        return _run(experiment, regime, "all tasks", loss, data, config)

    data = [[one.digest("train"), list(one.classes)] for one in rows]
    decides = {"regime": regime, "config": config.as_dict(), "joint": data}
    decides |= {"softmax": "one"} if one_softmax else {}
    return KeptDirection(
        experiment.cell("joint", make, regime, *experiment.pool, **decides), regime
    )


def refreshed(
    experiment: Experiment,
    vector: TrainedVector,
    others: Sequence[str],
    config: RefreshConfig | None = None,
) -> TrainedVector:
    """The vector after a label-free refresh against `others`; unchanged if that was not accepted.

    A vector that is refreshed again is compared with its state before the first refresh.
    """
    config = replace(config or experiment.suite.refresh, seed=experiment.seed)
    first = vector.first or vector.cell
    again = first.key != vector.key

    def make() -> Made:
        module = experiment.base.linearized(experiment.suite.precision)
        # A refresh is relative to the vector's own size and does not use the norms of features.
        names = (vector.task, *others)
        own, *rest = [Store(name, experiment.store(name).items, math.nan) for name in names]
        places = (module, experiment.backbone, vector.tau(), own, rest, config)
        found = refresh(*places, first=first.tensors() if again else None)
        facts = {"accepted": found.accepted, "reason": found.reason}
        facts |= {"before": found.before._asdict(), "after": found.after._asdict()}
        return facts, found.tau if found.accepted else {}

    cell = experiment.cell(
        "refresh",
        make,
        f"of {vector.task}",
        vector=vector.key,
        config=config.as_dict(),
        precision=experiment.suite.precision,
        own=experiment.rows(vector.task).digest("shard"),
        others=[experiment.rows(other).digest("shard") for other in others],
        **({"first": first.key} if again else {}),
    )
    later = together([vector.later, cell.cost])
    kept = cell if cell.facts["accepted"] else vector.cell
    return replace(vector, cell=kept, later=later, refresh=cell, first=first)


def _run(
    experiment: Experiment,
    regime: Regime,
    what: str,
    loss: RowLoss,
    data: Labelled,
    config: TrainConfig,
    stores: Sequence[Store] = (),
    start: Params | None = None,
) -> Made:
    base, curve = experiment.base, []
    linearized = regime == "linearized"
    module = base.linearized(config.precision) if linearized else base.ordinary()
    module.load_tau(start or {})
    engine = PlainEngine(module, config)

    def on_step(record: StepRecord) -> None:
        curve.append(round(record.loss, 4))
        if (record.step + 1) % TOLD == 0:
            experiment.cells.say(f"  {what}: step {record.step + 1} of {config.steps}")

    train(engine, experiment.backbone, loss, data, lambda step: stores, config, on_step=on_step)
    tau = engine.module.tau_dict()
    return {"loss": curve, "norm": params.norm(tau)}, tau


def _precision(regime: Regime) -> dict[str, Any]:
    """float32 for ordinary training: tau is smaller than the last digits of theta0 in bfloat16."""
    return {"precision": "float32"} if regime == "ordinary" else {}


def _told(regime: Regime, config: TrainConfig, others: Sequence[str]) -> str:
    against = f"{config.penalty} x {config.strength:g} against {len(others)}" if others else "alone"
    return f"{regime}, {against}"
