"""The learner: one piece of work after the other in a process; digests in, digests out.

A plain class; the coordinator makes it a remote actor. Between pieces of work it keeps nothing but
the base: each one sets its number of threads, and seeds its random numbers. A run on one worker
trains in this process, one on several in a group of processes (`cluster.learner.group`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from cluster.domain import work as works
from cluster.domain.base import Base
from cluster.domain.work import Progress, Result, TrainWork, Work
from cluster.learner.composition.run import compose
from cluster.learner.evaluation import evaluate
from cluster.learner.heads import fit
from cluster.learner.interference import measure
from cluster.learner.progress import ProgressCallback, in_phases, throttled
from cluster.learner.refresh import refresh
from cluster.learner.training import LeaseClient, train_task
from cluster.runtime.connection import CoordinatorClient
from cluster.storage.home import Home
from tacl.errors import BadBase
from tacl.training.config import Precision

# Functions that do work other than training, by kind.
HANDLERS: dict[str, Callable[[Any, Home, ProgressCallback], Result]] = {
    "refresh": refresh,
    "measure": measure,
    "fit": fit,
    "evaluate": evaluate,
    "compose": compose,
}

LOG = logging.getLogger(__name__)


class Learner:
    """Does work for a home. `known` says which shards steps see; by default it is the coordinator
    of this Ray cluster."""

    def __init__(self, home: str, known: LeaseClient | None = None) -> None:
        self._home = Home.at(home)
        self._known = known or CoordinatorClient()

    def describe_base(self, spec: str) -> Base:
        """Loads the base model and tries the passes of runs. Raises BaseNotFound, BadBase."""
        from tacl.backbone import load_backbone
        from tacl.models.linearized import linearize
        from tacl.models.mixed import mixes, three_inputs

        backbone = load_backbone(spec)
        try:
            raws = three_inputs(backbone.modality)
            passed = linearize(backbone)(backbone.collate([*map(backbone.prepare, raws)]))
            torch.stack(passed).sum().backward()  # which a training needs
            mixes(backbone)  # for its errors: where it is False, rows of users pass apart
        except (ValueError, RuntimeError) as error:  # NotImplementedError too, if no rule
            raise BadBase(f"{spec} cannot be used: {error}") from error
        modality, head_kind = backbone.modality, backbone.head_kind
        return Base(spec=spec, digest=backbone.digest, modality=modality, head_kind=head_kind)

    def faster_precision(self, spec: str) -> Precision:
        """The number format in which this base model trains faster here."""
        from tacl.backbone import load_backbone
        from tacl.training.precision import faster_with

        return faster_with(load_backbone(spec))

    def work(self, work: Work) -> Result:
        """Does the work; raises what it raises."""
        if isinstance(work, TrainWork):
            return self._train(work)
        threads = work.options.cpus_per_worker if isinstance(work, works.RefreshWork) else 1
        torch.set_num_threads(threads)
        try:
            return HANDLERS[work.kind](work, self._home, self._telling(work))
        except torch.OutOfMemoryError:
            if not isinstance(work, works.VectorWork) or not work.gpus:
                raise
            # No user chose this GPU, or could choose another.
            LOG.warning("%s: its part of a GPU is too small, a CPU does it", work.kind)
        return self.work(work.model_copy(update={"gpus": 0}))

    def _telling(self, work: Work) -> ProgressCallback:
        def tell(step: int, steps: int, loss: float | None) -> bool:
            progress = Progress(step=step, steps=steps, loss=loss)
            return self._known.report_progress(work.run_id, progress, work.attempt)

        return throttled(tell)

    def _train(self, work: TrainWork) -> works.Trained:
        options = work.submission.options
        torch.set_num_threads(options.cpus_per_worker)
        if work.submission.vector_blob is not None:
            from cluster.learner.importing import import_task

            return import_task(work, self._home, in_phases(work, self._known))
        if options.workers > 1:
            from cluster.learner.group import train_together

            return train_together(work, self._home, self._known)
        trained = train_task(work, self._home, self._known)
        assert trained is not None  # rank 0 of one
        return trained
