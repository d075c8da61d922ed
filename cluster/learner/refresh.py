"""One label-free refresh, from digests to a new version of a vector or the reason against it."""

from __future__ import annotations

import math
import time

from cluster.domain.outcomes import GivesWay
from cluster.domain.tasks import GENERIC
from cluster.domain.work import Refreshed, RefreshWork
from cluster.learner.artifacts import Materials, asked_device
from cluster.learner.interference import stored_vector
from cluster.learner.progress import ProgressCallback
from cluster.scheduler.budget import REMEASURED
from cluster.storage.checkpoints import checkpoints
from cluster.storage.home import Home
from tacl.training.config import RefreshConfig
from tacl.training.refresh import Descent
from tacl.training.refresh import refresh as refreshed
from tacl.vectors.vector import TaskVector

DESCENT = "descent.safetensors"


def refresh(work: RefreshWork, home: Home, tell: ProgressCallback) -> Refreshed:
    """Refreshes a vector. Gives way between two steps; the next attempt continues from there.
    Raises EmptySplit when there is no other store, or one is too small to hold rows out."""
    started = time.monotonic()
    materials = Materials(home, work.base, asked_device(work.options))
    module = materials.linearized(work.options.precision)
    tau = materials.vector(work.vector).to_params()
    first = materials.vector(work.first).to_params() if work.first else None
    config = RefreshConfig(seed=work.options.seed)
    # A refresh is relative to the vector's own size, so the features' norms (NaN) are not needed.
    # The generic shard is no task: leaving its inputs alone gains nothing once there are tasks.
    tasks = [shard for shard in work.others if shard.task != GENERIC] or list(work.others)
    own, *others = [materials.store(shard, math.nan) for shard in (work.own, *tasks)]

    store = checkpoints(home, work.run_id)

    def after(descent: Descent) -> None:
        done, curve = len(descent.curve), descent.curve
        if tell(done, config.steps, curve[-1]) and done < config.steps:
            store.write(done, lambda folder: descent.save(folder / DESCENT))
            raise GivesWay

    with store.newest() as kept:
        saved = kept and kept.folder / DESCENT
        given = module, materials.backbone, tau, own, others, config
        found = refreshed(*given, after, first, saved)
    facts = {
        "accepted": found.accepted,
        "reason": found.reason,
        "config": config.as_dict(),
        "metrics": {
            "own_change": found.after.own,
            "interference_before": found.before.interference,
            "interference_after": found.after.interference,
        },
        "curves": {"step": list(range(len(found.curve))), "loss": found.curve},
    }
    if found.accepted:
        whole = TaskVector.of_params(work.vector.task, work.base.digest, "linearized", found.tau)
        # The tasks that it was made for are last; the plan has others measured when there is room.
        shards = (*work.others[-REMEASURED:], work.own)
        facts |= stored_vector(materials, whole.stored(work.options.keep_as), shards)
    facts["metrics"]["seconds"] = time.monotonic() - started
    return Refreshed(**facts)
