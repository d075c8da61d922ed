"""The process behind `tacl up`: `python -m cluster.runtime.head --home H`. It is the Ray cluster of
a home.

It starts Ray on this machine alone, or joins the cluster at `--address`; founds the home the first
time, starts the coordinator, writes `cluster.json` when everything answers, and ends everything on
SIGTERM. Ray's processes end with it, also when it is killed; a cluster that it joined continues,
and the next head of the home takes over what runs there. When Ray or the coordinator is lost, it
starts again, in the same process and with the home locked, as often as it takes. It prints what it
does; the last line of a failure is the error's message, and the exit code that of the error.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from cluster import tracing
from cluster.coordinator.acceptance import require_startable
from cluster.domain.base import BlobRef, Modality
from cluster.domain.loopback import on_loopback
from cluster.errors import exit_code
from cluster.registry import Registry
from cluster.registry.migrating import migrate
from cluster.runtime import processors
from cluster.runtime.logs import log_to
from cluster.runtime.restart import HEAD, Restart, end, first, restarter
from cluster.scheduler.reuse import RUNS
from cluster.storage import home as homes
from cluster.storage.blobs import Blobs
from cluster.storage.drafts import atomic_write
from cluster.storage.filesystem import Storage
from cluster.storage.home import Founding, Home, Running, Settings
from tacl.errors import BadConfig, ClusterNotRunning, HomeInUse, TaclError

LEARNER = "cluster.learner.learner:Learner"
SERVING = "cluster.serving.again"  # a program
DOOR = "cluster.serving.connections.install"  # what Serve's HTTP proxy calls
GENERIC_ROWS = 1024
LOG = logging.getLogger("cluster.runtime.head")  # not __main__
STORE_BYTES = 512 << 20  # Ray's object store: large data goes through blobs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster.runtime.head", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--base", help="the pre-trained base model; needed the first time")
    parser.add_argument("--generic", help="data set of the reference shard; likewise")
    parser.add_argument("--storage", help="URI of blobs and checkpoints; likewise")
    parser.add_argument("--registry", help="URL of the registry; likewise")
    parser.add_argument("--cpus", type=int, help="CPUs to use; default: all that it has")
    parser.add_argument("--address", help="HOST:PORT of a Ray cluster to join")
    parser.add_argument("--insecure", action="store_true", help="though it asks for no token")
    parser.add_argument("--learner", default=LEARNER, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=RUNS, help=argparse.SUPPRESS)  # of a learner
    parser.add_argument("--losses", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, environment = [*HEAD, *first(given)], dict(os.environ)
    try:
        home = Home(chosen.home.expanduser().resolve())
        os.umask(0o077)  # also of every process of the cluster that is started here
        home.close_to_others()
        log_to(home.logs, "cluster")
        with home.lock(held=chosen.lock) as lock:
            if not chosen.losses:
                home.serving_file.unlink(missing_ok=True)  # Serve ended with its cluster
            renew = restarter(home, lock, command, chosen.losses, environment)
            founding = Founding(chosen.base, chosen.generic, chosen.storage, chosen.registry)
            try:
                serve(home, founding, chosen, renew)
            except Exception as error:
                if not chosen.losses or isinstance(error, HomeInUse):
                    raise  # somebody may have taken the home over meanwhile
                with contextlib.suppress(OSError):
                    traceback.print_exc()
                renew(f"it could not be started again: {error}")
    except TaclError as error:
        LOG.error("ended", extra={"error": type(error).__name__, "cause": str(error)})
        print(homes.FATAL + " ".join(str(error).split()), file=sys.stderr, flush=True)
        return exit_code(error)
    return 0


def serve(home: Home, chosen: Founding, how: argparse.Namespace, renew: Restart) -> None:
    """Run the cluster of a home, whose lock is held, until SIGTERM; `renew` restarts a lost one."""
    _require_usable(home, chosen)
    joined = _joined(home, chosen, how.address, how.insecure) if how.address else None
    with joined or _started(home, how.cpus) as running:
        from cluster.runtime.starting import start_coordinator
        from cluster.runtime.watch import PERIOD, Watch

        signal.signal(signal.SIGTERM, _leave)  # after Ray, which sets its own
        if home.serving() is not None:  # it takes seconds to import what it needs
            _say("serving again")
            subprocess.Popen([sys.executable, "-m", SERVING, str(home.path)])
        if home.settings() is None:
            _found(home, chosen, how.learner)
        _require_alone(home)
        _say("starting the coordinator")
        place = str(home.path) if home.is_pinned else home.where
        start_coordinator(place, how.learner, pinned=home.is_pinned, runs=how.runs)
        homes.write(home.running_file, running)
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        _say("ready")
        watch = Watch()
        while not stop.wait(PERIOD):
            if what := watch.lost():
                renew(f"{what} was lost")
        watch.end()
        _say("stopping")
        _drain()


def _drain() -> None:
    """Finish the HTTP requests being answered. Serve is imported only if it runs."""
    import ray

    with contextlib.suppress(ValueError):
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
        from ray import serve

        serve.shutdown()


def _require_usable(home: Home, chosen: Founding) -> None:
    """Raise everything that would keep a coordinator from starting, before anything is started."""
    _take_over(home, chosen)
    homes.require_founder(home, chosen)
    tracing.require_installed()
    if home.settings() is not None:
        if (migrated := migrate(home.registry_url, home.old_registries)) is not None:
            _say(str(migrated))
        require_startable(home)
    elif chosen.registry is not None:
        Registry(chosen.registry).close()
    if chosen.storage is not None:
        Storage(chosen.storage).write("probe/head", b"this can be written")


def _take_over(home: Home, chosen: Founding) -> None:
    """Continue a home of another machine here, if its storage and registry can be reached."""
    known = home.settings()
    if known is not None:
        if known.storage and homes.published(known.storage) is None:  # a head died in between
            homes.publish(known)
        return
    found = homes.published(chosen.storage) if chosen.storage else None
    if found is not None and (found.registry or "sqlite:").startswith("sqlite:"):
        raise HomeInUse(
            f"{chosen.storage} is the storage of a home whose registry is an SQLite file on the "
            "machine where it was founded; start it there, restore a backup of it elsewhere, or "
            "name another storage"
        )
    if found is not None:
        homes.write(home.settings_file, found)


def _require_alone(home: Home) -> None:
    """HomeInUse while another cluster writes the registry: a coordinator would wait for it."""
    with contextlib.closing(Registry(home.registry_url)) as registry:
        registry.acquire_writer()


@contextlib.contextmanager
def _started(home: Home, cpus: int | None) -> Iterator[Running]:
    """A cluster of this machine alone, which ends with the block."""
    _prepare_environment(home)
    import ray

    try:
        _start_ray(cpus)
        context = ray.get_runtime_context()
        session = sessions() / context.get_session_name()
        yield Running(pid=os.getpid(), address=context.gcs_address, token=str(home.token_file))
    finally:
        family = psutil.Process().children(recursive=True)
        ray.shutdown()
        end(family)
        home.running_file.unlink(missing_ok=True)
    shutil.rmtree(session, ignore_errors=True)  # Ray would keep the logs of every start for ever


def _start_ray(cpus: int | None) -> None:
    """Start Ray on this machine. Raises ClusterNotRunning."""
    import ray
    from ray._private import parameter

    from cluster.runtime.connection import NAMESPACE

    _say("starting Ray")
    # One machine needs no autoscaler, and workers write logs of their own: two processes fewer, for
    # which `ray.init` has no options (ray 2.60).
    without: dict[str, Any] = {"no_monitor": True, "include_log_monitor": False}
    alone = partial(parameter.RayParams, **without)
    parameter.RayParams = alone  # pyright: ignore[reportAttributeAccessIssue]
    folder = sessions()
    try:
        ray.init(
            address="local",
            namespace=NAMESPACE,
            num_cpus=cpus or processors.cpus(),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=STORE_BYTES,
            _temp_dir=str(folder),
        )
    except Exception as error:  # Ray has no class for it
        LOG.exception("Ray did not start")
        raise ClusterNotRunning(
            f"Ray did not start: {' '.join(str(error).split()).rstrip('.')}. Mostly the machine "
            "is too busy or short of memory: free some of it, then `tacl up` again"
        ) from error


def sessions() -> Path:
    """The folder of Ray's sockets and logs, which Ray opens to everybody: in a folder that only
    this user may enter, in $RAY_TMPDIR or /tmp, as paths of sockets must be short. BadConfig."""
    path = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / f"tacl-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise BadConfig(
            f"{path}, where Ray is to have its sockets, cannot be made: {error.strerror}; name "
            "another folder, with a short path: RAY_TMPDIR"
        ) from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700 or path.is_symlink():
        raise BadConfig(
            f"{path}, where Ray is to have its sockets, is not a folder that only you may enter; "
            "whoever made it has to remove it"
        )
    return path / "ray"


@contextlib.contextmanager
def _joined(home: Home, chosen: Founding, address: str, insecure: bool) -> Iterator[Running]:
    """A cluster that existed before. What was started on it ends with the block."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0" if on_loopback(address) else "1"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from cluster.runtime import nodes

    _say(f"joining the Ray cluster at {address}")
    closed = nodes.join(address, insecure)
    try:
        _say("asking every node whether it sees the storage")
        new = chosen.storage if home.settings() is None else None  # else as it was founded
        nodes.require_shared(Storage(new) if new else home.shared())
        nodes.take_over(new or home.where)
        address = ray.get_runtime_context().gcs_address  # a host may have several names
        token = os.environ.get("RAY_AUTH_TOKEN_PATH") if closed else None
        where = {"pid": os.getpid(), "address": address, "token": token}
        try:
            yield Running(**where, joined=True, insecure=not closed)
        finally:
            nodes.end_actors()
    finally:
        home.running_file.unlink(missing_ok=True)
        ray.shutdown()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _say(line: str) -> None:
    LOG.info(line)
    with contextlib.suppress(OSError):  # a full disk stops nothing
        print(line, flush=True)


def _prepare_environment(home: Home) -> None:
    """Set the variables that Ray reads when it is imported; its workers inherit them.

    A one-machine cluster stays on the loopback interface, and requires a token that only the owner
    of the home can read.
    """
    if not home.token_file.exists() or not home.token_file.stat().st_size:
        with atomic_write(home.token_file) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secrets.token_hex(32).encode())
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.pop("RAY_AUTH_TOKEN", None)  # it would have precedence
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(home.token_file)
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else it is what the host's name resolves to
    # By default Ray would start every actor, also the coordinator, at the lowest priority but four.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as jobs/cli/main.py: others may start this
    # By default Serve kills its HTTP server if a busy machine takes longer than 5 s to start it.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
    os.environ["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] = DOOR


def _found(home: Home, chosen: Founding, learner: str) -> None:
    """Found the home: load its base, store the generic shard. Raises what is wrong with either."""
    from cluster.runtime.starting import describe_base

    _say(f"loading the base {chosen.base}, and timing it in two number formats")
    base, precision = describe_base(str(home.path), chosen.base or "", learner)
    store = Storage(chosen.storage or home.path).below("blobs").uri
    source = f" from {chosen.generic}" if chosen.generic else ""
    _say(f"reading the generic samples{source}")
    blobs = Blobs(store, cache=home.path / "cache" / "blobs")
    settings = Settings(
        base=base,
        generic=generic_shard(blobs, base.modality, chosen.generic),
        blobs=store,
        storage=chosen.storage,
        registry=chosen.registry,
        precision=precision,
    )
    homes.write(home.settings_file, settings)
    homes.publish(settings)


def generic_shard(blobs: Blobs, modality: Modality, generic: str | None) -> BlobRef:
    """The generic shard: samples of a data set, or generated pictures if none is given."""
    from cluster.data.ingest import ingest_samples

    if generic is not None:
        return ingest_samples(generic, blobs, modality)
    from tacl.embedded import generic as generated
    from tacl.embedded import write_images

    with tempfile.TemporaryDirectory() as folder:
        write_images(generated(GENERIC_ROWS, seed=0), Path(folder))
        return ingest_samples(folder, blobs, modality)


if __name__ == "__main__":
    sys.exit(main())
