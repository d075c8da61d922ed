"""A cluster of three nodes that was there before: joined, trained across, a node lost, one added.

The nodes are raylets of this machine; each has its own cache and none sees the home's directory:
what they share is a bucket of S3 and a PostgreSQL server (SQLite where there is none).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.client.client import Client
from cluster.domain.tasks import Submission
from cluster.domain.work import Lease, Leave, Trained
from cluster.errors import exit_code
from cluster.learner import training
from cluster.learner.learner import CoordinatorClient, Learner
from cluster.runtime.access import authenticate
from cluster.runtime.actors import RayLauncher
from cluster.runtime.connection import leave
from cluster.runtime.nodes import require_shared
from cluster.storage.filesystem import Storage
from cluster.storage.home import Home
from tacl.errors import BadConfig, HomeInUse, NotPlaceable
from tacl.vectors.params import Params, combine, norm
from tacl.vectors.vector import TaskVector
from tests.integration.test_head import ROOT, until
from tests.support import postgres, s3, tiny
from tests.support.started import joined, started

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1500)]  # minutes where the CPUs are shared

STEPS = 24
LEARNER = "tests.integration.test_nodes:EagerLearner"


class Eager(CoordinatorClient):
    """Every step is asked for, is a checkpoint and takes a moment; which were is written down."""

    def __call__(self, asked: Lease) -> Leave:
        training.CHECKPOINT_SECONDS = -1.0
        time.sleep(0.15)
        with Path(os.environ["ASKED"]).open("a") as file:
            file.write(json.dumps([asked.attempt, asked.first]) + "\n")
        return super().__call__(asked)._replace(seconds=-1.0)

    def __reduce__(self) -> tuple[type[Eager], tuple[()]]:
        return Eager, ()


class EagerLearner(Learner):
    def __init__(self, home: str) -> None:
        super().__init__(home, Eager())


class Nodes:
    """Raylets, each with a cache of its own: one without CPUs, and two that work."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        head = {"num_cpus": 0, "object_store_memory": 100 << 20}
        self.cluster = started(**head)
        self.working = self.add(2), self.add(2)

    def add(self, cpus: int) -> Any:
        self._number += 1
        cache = {"XDG_CACHE_HOME": str(self._folder / f"node{self._number}")}
        room = {"num_cpus": cpus, "object_store_memory": 100 << 20}
        return joined(self.cluster, **room, env_vars=cache)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What raylets, the head and this process share."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "token").write_text("t" * 32)
    before = dict(os.environ)
    os.environ.update(
        {
            **s3.ENVIRONMENT,
            "RAY_worker_niceness": "0",
            "RAY_health_check_period_ms": "1000",  # a lost node is known in seconds
            "PYTHONPATH": str(ROOT),
            "ASKED": str(folder / "asked"),
            "XDG_CACHE_HOME": str(folder / "here"),
        }
    )
    authenticate("token", str(folder / "token"))
    yield folder
    authenticate("disabled")
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def nodes(environment: Path) -> Iterator[Nodes]:
    nodes = Nodes(environment)
    try:
        yield nodes
    finally:
        import ray

        ray.shutdown()
        nodes.cluster.shutdown()


def start(nodes: Nodes, home: Home, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cluster.runtime.head", "--home", str(home.path)]
    command += ["--learner", LEARNER, "--address", nodes.cluster.address, *options]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT
    )


def registry(request: pytest.FixtureRequest, folder: Path) -> str:
    """PostgreSQL's where it can be had: then the coordinator may run on any node."""
    if postgres.binaries() is not None or "TACL_REQUIRE" in os.environ:
        return request.getfixturevalue("postgres_server").new_database()
    return f"sqlite:///{folder / 'registry.sqlite'}"


def generic(folder: Path) -> Path:
    (folder / "generic").mkdir(parents=True)
    for number, image in enumerate(tiny.pictures(70, classes=8, task=99)[0]):
        (folder / "generic" / f"{number}.png").write_bytes(image)
    return folder / "generic"


@pytest.mark.nightly
def test_a_node_is_lost_and_another_one_comes(
    nodes: Nodes, s3_server: s3.Server, request: pytest.FixtureRequest, environment: Path
) -> None:
    storage = s3_server.new_bucket()
    home = Home(environment / "home")
    founding = ["--base", tiny.base(environment), "--generic", str(generic(environment))]
    founding += ["--storage", storage, "--registry", registry(request, environment)]
    head = start(nodes, home, *founding)
    try:
        until(lambda: home.running() or head.poll() is not None, "the head is ready", 300)
        assert home.running(), head.communicate()[0]
        client = Client(home.path)
        assert sorted(node.cpus for node in client.cluster().nodes) == [0, 2, 2]
        (coordinator,) = nodes_of("WatchedCoordinator")  # its own death is another test
        lost = next(node for node in nodes.working if node.node_id != coordinator)
        train_across_and_lose(client, home, nodes, lost)
        train_with_a_newcomer(client, home, nodes)
        other = start(nodes, Home(environment / "another"), *founding[:4], "--storage", storage)
        assert other.wait(300) == exit_code(HomeInUse(""))
    finally:
        leave(home)
        head.send_signal(signal.SIGTERM)
        said = head.communicate(timeout=120)[0]
    assert head.returncode == 0, said
    assert home.running() is None
    caches = [path.name for path in environment.iterdir() if (path / "tacl").is_dir()]
    assert {"node1", "node2", "node3"} <= set(caches)  # nobody read the home's own directory


def train_across_and_lose(client: Client, home: Home, nodes: Nodes, lost: Any) -> None:
    """Two workers, each on its own node; then one of the nodes is gone. What is left goes on, and
    comes to the vector of a run that nothing happened to."""
    task = tiny.submission(home, 1, steps=STEPS, workers=2)
    client.coordinator.submit(client.context(), task)
    until(lambda: (client.task("task1").step or 0) > 5, "the group trains", 300)
    assert len(nodes_of("RayTrainWorker")) == 2
    nodes.cluster.remove_node(lost, allow_graceful=False)
    done = client.wait("task1", timeout=600).tasks[0]
    assert (done.state, done.version, done.attempt) == ("ready", 1, 2)
    asked = [json.loads(line) for line in Path(os.environ["ASKED"]).read_text().splitlines()]
    first, second = ([step for a, step in asked if a == attempt] for attempt in (1, 2))
    assert 0 < second[0] <= first[-1]  # from a checkpoint, in the bucket
    assert second == list(range(second[0], STEPS))
    (entry,) = client.vectors("task1")
    assert entry.curves["step"] == list(range(STEPS))
    died = [event.text for event in client.logs("task1") if event.kind == "died"]
    assert len(died) == 1, died
    expected = undisturbed(home, task)
    difference = combine([(1.0, tau(home, entry.blob)), (-1.0, expected)])
    assert norm(difference) < 1e-4 * norm(expected)


def undisturbed(home: Home, task: Submission) -> Params:
    """The vector of one worker, by the plain engine."""
    alone = task.options.model_copy(update={"workers": 1, "engine": "plain"})
    work = tiny.train_work(home, task.model_copy(update={"options": alone}))
    trained = Learner(str(home.path), tiny.LeaseClient(tiny.generic(home))).work(work)
    assert isinstance(trained, Trained)
    return tau(home, trained.vector_blob)


def tau(home: Home, blob: str) -> Params:
    return TaskVector.load(home.blobs().local_path(blob)).to_params()


def alive(actor_class: str) -> list[dict[str, Any]]:
    from ray._private import state

    running = [one for one in state.actors().values() if one["State"] == "ALIVE"]
    return [one for one in running if one["ActorClassName"] == actor_class]


def nodes_of(actor_class: str) -> set[str]:
    """Where actors of a class run."""
    return {one["Address"]["NodeID"] for one in alive(actor_class)}


def train_with_a_newcomer(client: Client, home: Home, nodes: Nodes) -> None:
    """Too much for the node that is left; not for two. Its learner is killed, and what the group
    had is free again: the next one needs all of it."""
    until(lambda: len(client.cluster().nodes) == 2, "the loss is known", 200)
    wide = tiny.submission(home, 2, steps=3, workers=2, cpus_per_worker=2, refresh="never")
    with pytest.raises(NotPlaceable, match=r"2 workers of 2 CPUs; the cluster has 2 nodes"):
        client.coordinator.submit(client.context(), wide)
    nodes.add(2)
    until(lambda: len(client.cluster().nodes) == 3, "the newcomer is known", 200)
    client.coordinator.submit(client.context(), wide)
    until(lambda: len(nodes_of("RayTrainWorker")) == 2, "a worker is on each node", 300)
    assert client.task("task2").state == "training"
    (learner,) = alive("LearnerProcess")
    os.kill(learner["Pid"], signal.SIGKILL)
    client.wait("task2", timeout=600)
    done = client.task("task2")
    assert (done.state, done.version, done.attempt) == ("ready", 1, 2)


def test_nodes_that_do_not_share_a_directory_are_named(
    nodes: Nodes, s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    if not ray.is_initialized():
        ray.init(address=nodes.cluster.address, log_to_driver=False)
    require_shared(Storage(s3_server.new_bucket()))
    require_shared(Storage(tmp_path / "mounted everywhere"))
    assert not list((tmp_path / "mounted everywhere" / "probe").iterdir())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadConfig, match=r"not the same place on every node.*does not see what"):
        require_shared(Storage("file:///proc/self/cwd/own"))  # each process has another


class Controller:
    """Holds a CPU by a placement group, as Ray Train's controller does."""

    def group(self) -> str:
        import ray
        from ray.util.placement_group import placement_group

        made = placement_group([{"CPU": 1}])
        ray.get(made.ready())
        return made.id.hex()


def test_what_a_lost_controller_held_is_given_back_and_nothing_else(nodes: Nodes) -> None:
    import ray
    from ray.util import placement_group_table

    if not ray.is_initialized():
        ray.init(address=nodes.cluster.address, log_to_driver=False)
    make: Any = ray.remote(num_cpus=0)(Controller)
    lost, lives = make.remote(), make.remote()
    orphan, kept = ray.get([lost.group.remote(), lives.group.remote()])
    ray.kill(lost)

    def states() -> tuple[str, str]:
        RayLauncher("", "", lambda: None).free()
        table = placement_group_table()
        return table[orphan]["state"], table[kept]["state"]

    until(lambda: states() == ("REMOVED", "CREATED"), "the orphan is given back")
