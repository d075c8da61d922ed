"""A training on several workers: a Ray Train group, whose workers each run `training.train_task`.

Ray Train only forms the group; it never restarts anything.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from cluster.domain.loopback import on_loopback
from cluster.domain.outcomes import GivesWay, Lost
from cluster.domain.tasks import Options
from cluster.domain.work import Trained, TrainWork
from cluster.learner.training import LeaseClient, train_task
from cluster.runtime.logs import log_to
from cluster.storage.filesystem import Storage
from cluster.storage.home import Home
from tacl.errors import BadConfig, RunFailed, TaclError

if TYPE_CHECKING:
    from ray.train.torch import TorchConfig

GROUP_ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # the default loses 2 s at the end of every run
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # a busy machine imports torch for a minute
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process whose reports are not used
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # keeps relative paths valid
}
LOG = logging.getLogger(__name__)


def train_together(work: TrainWork, home: Home, known: LeaseClient) -> Trained:
    """Trains one run on `options.workers` ranks. Raises the error of the ranks (see `cause`)."""
    config = {"home": home.where, "work": work, "known": known}
    name = f"{work.run_id[:16]}-{work.attempt}"
    return Trained.model_validate(on_group(_rank, config, work.submission.options, home, name))


def on_group(
    function: Callable[[dict[str, Any]], Any],
    config: dict[str, Any],
    options: Options,
    home: Home,
    name: str,
) -> Any:
    """Runs `function` on every rank of a Ray Train group over the nodes; returns rank 0's value.

    Needs a Ray cluster, and a home on storage that all its nodes can read. Restarts nothing.
    """
    for variable, value in GROUP_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer
    from ray.train.v2._internal.callbacks.placement_group_callback import (
        PlacementGroupCleanerCallback,
    )
    from ray.train.v2.api.exceptions import WorkerGroupError

    class GroupTrainer(TorchTrainer):
        """A trainer without the process that cleans up placement groups, which would outlive it and
        needs Ray's dashboard: the coordinator releases what a lost group held."""

        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [c for c in callbacks if not isinstance(c, PlacementGroupCleanerCallback)]

    shared = home.shared()
    gpus = {"GPU": options.gpus_per_worker} if options.gpus_per_worker else {}
    trainer = GroupTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(
            num_workers=options.workers,
            use_gpu=options.gpus_per_worker > 0,
            resources_per_worker={"CPU": options.cpus_per_worker, **gpus},
            placement_strategy="SPREAD",
        ),
        torch_config=_meeting("nccl" if options.gpus_per_worker else "gloo", home, name),
        run_config=RunConfig(
            name=name,
            storage_path=f"{shared.root}/groups",
            storage_filesystem=shared.filesystem,
            failure_config=FailureConfig(
                max_failures=0, controller_failure_limit=0, max_preemption_failures=0
            ),
        ),
    )
    try:
        return trainer.fit().return_value
    except WorkerGroupError as error:
        raise cause(error.worker_failures) from error
    except TrainingFailedError as error:  # the group's controller, or a node that was taken away
        raise Lost(f"the group of {options.workers} workers was lost: {error}") from error
    finally:
        _delete(shared, f"{shared.root}/groups/{name}")


def _meeting(backend: str, home: Home, name: str) -> TorchConfig:
    """The ranks meet in a file if all nodes are on this machine; otherwise at a port of rank 0."""
    import ray.util

    from cluster.learner.rendezvous import InFile, OnNodes

    if not on_loopback(f"{ray.util.get_node_ip_address()}:0"):
        return OnNodes(backend=backend)
    folder = home.path / "cache" / "groups"
    if {"#", "?"} & {*str(folder)}:
        raise BadConfig(f"{folder}: torch reads no path with # or ?; use another --home")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / name).unlink(missing_ok=True)  # may be left by a group that was killed
    return InFile(backend=backend, path=str(folder / name))


def _delete(storage: Storage, folder: str) -> None:
    """Deletes the files that Ray Train writes about a group, which are not used."""
    try:
        storage.filesystem.delete_dir(folder)
    except OSError:  # missing, or the storage is unavailable: remaining files do no harm
        LOG.warning("%s was not deleted", folder, exc_info=True)


def _rank(config: dict[str, Any]) -> dict[str, Any] | None:
    """Runs in each worker of a group: trains as its rank."""
    work: TrainWork = config["work"]
    torch.set_num_threads(work.submission.options.cpus_per_worker)
    log_to(Home.at(config["home"]).logs, "learners")
    LOG.info("a worker started", extra={"run_id": work.run_id, "attempt": work.attempt})
    trained = train_task(work, Home.at(config["home"]), config["known"])
    return trained.model_dump() if trained else None


def cause(failures: Mapping[int, BaseException]) -> Exception:
    """The error to raise for those of the ranks: the first TaclError, Lost or GivesWay; else Lost
    if a process was lost; else RunFailed with the first rank's error in one line."""
    met = [link for rank in sorted(failures) for link in _links(failures[rank])]
    for error in met:
        if isinstance(error, (TaclError, Lost, GivesWay)):
            return error
    if any(_is_loss(error) for error in met):
        names = ", ".join(dict.fromkeys(type(error).__name__ for error in met))
        return Lost(f"a worker of the group was lost ({names})")
    rank = min(failures)
    return RunFailed(f"worker {rank}: {type(failures[rank]).__name__}: {failures[rank]}")


def _links(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "health_check_failure", None) or error.__cause__


def _is_loss(error: BaseException) -> bool:
    """Whether a process was lost: Ray's own errors mean that (those of its trainings have another
    class), and gloo's errors of a lost connection."""
    return type(error).__module__.startswith("ray.") or lost_partner(error)


def lost_partner(error: BaseException) -> bool:
    """Whether gloo lost a connection; it has no class for that, but names its source file."""
    return "gloo/transport" in str(error)
