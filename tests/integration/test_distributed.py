"""Training on two ranks that lie on different Ray nodes: the gradients, the memory, the accuracy.

Every process here is started by Ray as in production; the nodes are two raylets of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch

from cluster.domain.compositions import Composition
from cluster.domain.outcomes import Lost
from cluster.domain.tasks import Options, Submission
from cluster.domain.work import Evaluated, EvaluateWork, TaskData, Trained, TrainWork
from cluster.learner.artifacts import Materials
from cluster.learner.group import on_group
from cluster.learner.learner import Learner
from cluster.learner.training import configuration
from cluster.storage.home import Home
from tacl import embedded
from tacl.embedded.parquet import png
from tacl.training.loop import Engine, PlainEngine, Store, losses
from tests.support import tiny
from tests.support.places import ROOT
from tests.support.started import joined, started

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]  # minutes where the CPUs are shared

STEP = 3  # the optimizer step whose gradient is compared
STEPS = 80  # of the runs whose accuracy is compared


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """Two nodes of two CPUs each, so that both ranks would fit on one."""
    root = str(ROOT)
    os.environ.update(RAY_AUTH_MODE="disabled", PYTHONPATH=root, OMP_NUM_THREADS="1")
    os.environ.update(GLOO_SOCKET_IFNAME="lo")  # as the head of a home does
    os.environ.update({"RAY_worker_niceness": "0"})  # as fast as the test, beside other work too
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    import ray
    from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore

    Config.initialize("")  # a test before this one may have joined a cluster that asks for a token
    AuthenticationTokenLoader.instance().reset_cache()
    room = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
    cluster = started(**room | {"num_cpus": 0})
    try:
        for _ in range(2):
            joined(cluster, **room)
        ray.init(address=cluster.address, log_to_driver=False)
        yield [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return tiny.home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def task(home: Home) -> Submission:
    return tiny.submission(home, 1, rows=200)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """With the pre-trained encoder of the package."""
    return tiny.home(tmp_path_factory.mktemp("shipped"), "embedded")


@pytest.fixture(scope="module")
def signs(shipped: Home) -> Submission:
    """An embedded task with 1,000 test rows."""
    sizes = {"train": 480, "validation": 60, "test": 1000}
    drawn = {
        part: embedded.generate("signs", rows, seed)
        for seed, (part, rows) in enumerate(sizes.items())
    }
    parts = {
        part: ([png(image) for image in images], labels.tolist())
        for part, (images, labels) in drawn.items()
    }
    return tiny.stored(shipped, "signs", embedded.classes("signs"), parts, steps=STEPS)


def on(workers: int, task: Submission) -> Submission:
    options = task.options.model_copy(update={"workers": workers})
    return task.model_copy(update={"options": options})


def gradient(engine: Engine, materials: Materials, work: TrainWork, share: slice) -> None:
    """Leaves the gradient of one step's loss, from a tau that is not zero."""
    task = work.submission
    data = materials.labelled(task.train)
    head = materials.head_from(task.classes, lambda: data)
    config = configuration(task.options, len(data), materials.backbone)
    stores = [Store("other", data.items[:40], materials.feature_norm(task.shard))]
    with torch.no_grad():
        for number, (_, parameter) in enumerate(engine.module.named_parameters()):
            seeded = torch.Generator().manual_seed(number)
            parameter.copy_(1e-3 * torch.randn(parameter.shape, generator=seeded))
    task_loss, penalty = losses(engine, materials.backbone, head, data, stores, config, STEP, share)
    engine.backward((task_loss + config.strength * penalty) * engine.world_size)


def listening() -> set[str]:
    """The interfaces on which this process does."""
    ports = psutil.Process().net_connections("inet")
    found = {port.laddr.ip for port in ports if port.status == psutil.CONN_LISTEN}
    return {ip.removeprefix("::ffff:") for ip in found}


def one_rank_of_two(config: dict[str, Any]) -> dict[str, Any]:
    """Runs on each worker of a group."""
    import ray
    import torch.distributed as dist
    from deepspeed.utils import safe_get_full_grad

    from tacl.training.deepspeed import MOMENTS, DeepSpeedEngine

    work: TrainWork = config["work"]
    materials = Materials(Home.at(config["home"]), work.base)
    rows = configuration(work.submission.options, 200, materials.backbone)
    engine = DeepSpeedEngine(materials.linearized(), rows, zero_stage=2)
    gradient(engine, materials, work, slice(engine.rank, None, engine.world_size))
    found: dict[str, Any] = {n: safe_get_full_grad(p) for n, p in engine.module.named_parameters()}
    gradients = {name: value.numpy().copy() for name, value in found.items()}
    engine.step(1e-3)
    moments = [s[m] for s in engine.optimizer.state.values() for m in MOMENTS]
    mine = {
        "listens": listening(),
        "node": ray.get_runtime_context().get_node_id(),
        "bytes": sum(moment.nbytes for moment in moments),
        "learned": sum(v.double().abs().sum().item() for v in engine.module.tau_dict().values()),
    }
    ranks: list[Any] = [None] * engine.world_size
    dist.all_gather_object(ranks, mine)
    return {"ranks": ranks, "gradient": gradients}


def test_two_ranks_on_two_nodes_are_one_worker_with_half_the_optimizer(
    nodes: list[str], home: Home, task: Submission
) -> None:
    work = tiny.train_work(home, task)
    options = Options(workers=2)
    config = {"home": str(home.path), "work": work}
    found = on_group(one_rank_of_two, config, options, home, "gradients")

    assert {rank["node"] for rank in found["ranks"]} == set(nodes)
    assert [rank["listens"] for rank in found["ranks"]] == [{"127.0.0.1"}] * 2
    assert found["ranks"][0]["learned"] == found["ranks"][1]["learned"]

    materials = Materials(home, work.base)
    module = materials.linearized()
    one = PlainEngine(module, configuration(task.options, 200, materials.backbone))
    gradient(one, materials, work, slice(0, None, 1))
    whole = 0
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        size = parameter.grad.abs().max().item()
        torch.testing.assert_close(
            torch.tensor(found["gradient"][name]),
            parameter.grad,
            rtol=1e-4,
            atol=2e-6 * size + 1e-9,
            msg=name,
        )
        whole += 2 * parameter.numel() * parameter.element_size()
    for rank in found["ranks"]:
        assert rank["bytes"] == pytest.approx(whole / 2, rel=0.01)


def accuracy(home: Home, task: Submission, trained: Trained) -> float:
    """On the test rows."""
    ref = tiny.published(task, trained)
    data = TaskData(
        name=task.name,
        classes=task.classes,
        head_blob=ref.head_blob,
        test=task.test,
        individual=ref,
    )
    model: Composition = tiny.composition((1.0, ref))
    work = EvaluateWork(
        run_id="evaluate",
        base=tiny.train_work(home, task).base,
        composition=model,
        tasks=(data,),
        attempt=1,
    )
    evaluated = Learner(str(home.path), tiny.LeaseClient()).work(work)
    assert isinstance(evaluated, Evaluated)
    row = evaluated.per_task[task.name]
    assert row.rows == 1000
    assert row.individual is not None
    assert row.individual > row.zero_shot + 0.02
    return row.individual


@pytest.fixture
def coordinator(nodes: list[str], shipped: Home) -> Iterator[Any]:
    """Where learners look for one."""
    import ray

    remote: Any = ray.remote(tiny.LeaseClient)
    named = remote.options(name="coordinator", namespace="tacl", num_cpus=0)
    actor = named.remote(tiny.generic(shipped))
    yield actor
    ray.kill(actor)


@pytest.mark.nightly
def test_two_workers_train_as_well_as_one_also_when_a_worker_dies(
    coordinator: Any, shipped: Home, signs: Submission
) -> None:
    import ray

    two, path = on(2, signs), str(shipped.path)
    mortal = tiny.Mortal(tiny.generic(shipped), dies_at=12)
    with pytest.raises(Lost):
        Learner(path, mortal).work(tiny.train_work(shipped, two))
    together = Learner(path).work(tiny.train_work(shipped, two, attempt=2))
    assert isinstance(together, Trained)
    assert together.metrics["workers"] == 2
    assert ray.get(coordinator.asked_by_now.remote())[0] == 11
    assert together.curves["step"] == list(range(STEPS))

    remote: Any = ray.remote(Learner)
    actor = remote.options(num_cpus=1).remote(path)
    alone: Any = ray.get(actor.work.remote(tiny.train_work(shipped, signs)))
    assert alone.metrics["workers"] == 1
    assert accuracy(shipped, signs, together) == pytest.approx(
        accuracy(shipped, signs, alone), abs=0.02
    )
