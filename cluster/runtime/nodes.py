"""An existing Ray cluster: join it, check that its nodes share a storage, and leave it.

`tacl up --address HOST:PORT` runs on a machine that is a node of that cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

import ray
from ray import ActorID, PlacementGroupID
from ray._private import state
from ray.core.generated.gcs_pb2 import ActorTableData as Actor  # pyright: ignore
from ray.core.generated.gcs_pb2 import PlacementGroupTableData as Group  # pyright: ignore
from ray.exceptions import RayError
from ray.util import list_named_actors
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.runtime.access import use_token
from cluster.runtime.connection import COORDINATOR, coordinator, dial
from cluster.runtime.process import attempt_of
from cluster.storage.filesystem import Storage
from cluster.storage.home import Serving, try_lock
from tacl.errors import BadConfig, ClusterNotRunning, HomeInUse

PROBE_SECONDS = 60.0
END_SECONDS = 30.0
LOCK = ".lock"  # suffix of the file that is locked instead of another


def join(address: str, insecure: bool) -> bool:
    """Become a driver of the cluster; True if it requires a token. BadConfig, ClusterNotRunning."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadConfig(f"{address!r} is no address of a Ray cluster; use HOST:PORT")
    closed = use_token(address, insecure)
    try:
        dial(address)
    except (RayError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ClusterNotRunning(
            f"the Ray cluster at {address} cannot be joined from here: {reason}. Run `tacl up` on "
            f"a machine of that cluster: ray start --address={address}"
        ) from error
    return closed


def require_shared(storage: Storage) -> None:
    """Raise BadConfig unless every node reads what is written here, sees what is locked here, and
    writes what can be read here."""
    name, written = f"probe/{uuid.uuid4().hex}", uuid.uuid4().hex
    storage.write(name, written.encode())
    alive = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    with _locked(storage, name) as is_locked:
        answers = {node: _on(node).remote(storage.uri, name, node, is_locked) for node in alive}
        ready, _ = ray.wait(list(answers.values()), num_returns=len(answers), timeout=PROBE_SECONDS)
    blind = []
    for node, answer in answers.items():
        found = _answer(answer) if answer in ready else f"no answer in {PROBE_SECONDS:.0f} s"
        if found == written and storage.read(f"{name}.{node}") != written.encode():
            found = "what it wrote is not seen here"
        if found != written:
            blind.append(f"{alive[node]} (node {node[:8]}): {found}")
        storage.remove(f"{name}.{node}")
    for left in (name, f"{name}{LOCK}"):
        storage.remove(left)
    if blind:
        raise BadConfig(
            f"{storage.uri} is not the same place on every node of the cluster: "
            f"{'; '.join(blind)}. Use --storage s3://BUCKET/PREFIX, or a directory that all of its "
            "nodes mount."
        )


def _on(node: str):
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(_echo).options(num_cpus=0, scheduling_strategy=strategy, max_retries=1)


@contextlib.contextmanager
def _locked(storage: Storage, name: str) -> Iterator[bool]:
    """Yields whether this process, and no other, now locks a file beside this one: never in a
    bucket, nor on a disk without locks, where nothing is assumed to be left over. On SMB nobody
    else could read the locked file itself."""
    if not storage.is_local:
        yield False
        return
    with open(f"{storage.root}/{name}{LOCK}", "ab") as file:
        try:
            taken = try_lock(file.fileno(), fcntl.LOCK_EX)
        except OSError:
            taken = False
        yield taken


def _echo(uri: str, name: str, node: str, is_locked: bool) -> str:
    """What a node finds, which it also writes beside the file. `is_locked`: the writer locks it."""
    storage = Storage(uri)
    found = storage.read(name)
    if found is None:
        return "does not see what was written here"
    with _locked(storage, name) as taken:
        if is_locked and taken:
            return "does not see what was locked here (flock), as on NFS with `nolock`"
    storage.write(f"{name}.{node}", found)
    return found.decode()


def _answer(answer: ray.ObjectRef) -> str:
    try:
        return ray.get(answer)
    except RayError as error:
        return " ".join(str(getattr(error, "cause", None) or error).split())[:200]


def take_over(home: str) -> None:
    """End what a dead head left of this home, except learners: the next coordinator continues with
    those that it waits for, and ends the others. HomeInUse if a head runs, or the dead one was that
    of another home."""
    if COORDINATOR in list_named_actors():
        _require_headless()
        _require_served(home)
    end_actors(but=lambda name: attempt_of(name) is not None)


def _require_served(home: str) -> None:
    try:
        served = ray.get(coordinator().serves.remote(), timeout=PROBE_SECONDS)
    except RayError as error:
        raise ClusterNotRunning(
            f"a coordinator is on this cluster and does not answer: {error}. End it with Ray's "
            "own tools, or use another cluster."
        ) from error
    if served != home:
        raise HomeInUse(
            f"this cluster goes on with the work of another home, {served}, though nobody looks "
            "after it: `tacl up` and `tacl down` there, or use another cluster"
        )


def _require_headless() -> None:
    jobs = {job["JobID"]: job for job in state.jobs()}
    for actor in state.actors().values():
        head = jobs.get(actor["JobID"])
        if actor["Name"] != COORDINATOR or actor["State"] == "DEAD":
            continue
        if head is not None and not head["IsDead"]:
            raise HomeInUse(
                f"this cluster serves a home already, by process {head['DriverPid']} on "
                f"{head['DriverIPAddress']}; one cluster serves one home. Stop it with `tacl down` "
                "there, or use another cluster."
            )


def end_actors(but: Callable[[str], bool] = lambda name: False) -> None:
    """End coordinator, learners, predictor and all other actors that outlive their driver; the
    coordinator first, as it would start learners again."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        names = [name for name in list_named_actors() if not but(name)]
        if not names:
            return
        for name in sorted(names, key=lambda name: name != COORDINATOR):
            with contextlib.suppress(ValueError):  # it ended by itself
                ray.kill(ray.get_actor(name), no_restart=True)
        time.sleep(0.1)


def release_orphans() -> None:
    """Release what groups hold whose controller was lost, also on nodes that live on: Ray itself
    keeps it until the program that started the cluster's work ends."""
    own = ray.get_runtime_context().get_job_id()
    for raw in state.state._connect_and_get_accessor().get_placement_group_table():
        group = Group.FromString(raw)
        ours = group.creator_job_id.hex() == own and not ActorID(group.creator_actor_id).is_nil()
        if ours and group.creator_actor_dead and group.state != Group.REMOVED:
            remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))


def held_by(are_meant: Callable[[str], bool]) -> dict[str, dict[str, float]]:
    """Resources held by detached actors whose names `are_meant`, by node."""
    held: dict[str, dict[str, float]] = {}
    for raw in state.state._connect_and_get_accessor().get_actor_table(None, "ALIVE"):
        actor = Actor.FromString(raw)
        if actor.is_detached and are_meant(actor.name):
            node = held.setdefault(actor.address.node_id.hex(), {})
            for name, amount in actor.required_resources.items():
                node[name] = node.get(name, 0) + amount
    return held


def with_place_kept(
    held: Mapping[str, Mapping[str, float]], node: str, serving: Serving | None
) -> dict[str, dict[str, float]]:
    """The same, with room for at least one predictor, on `node` if there is none: a run in the
    place of a predictor that died would keep all queries waiting until the run ends."""
    found = {name: dict(amounts) for name, amounts in held.items()}
    due = {"CPU": serving.cpus, "GPU": serving.gpus} if serving else {}
    for name, amount in due.items():
        missing = amount - sum(amounts.get(name, 0) for amounts in found.values())
        if missing > 0:
            kept = found.setdefault(node, {})
            kept[name] = kept.get(name, 0) + missing
    return found


def here() -> NodeAffinitySchedulingStrategy:
    """Placement on the node of this process and no other."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
