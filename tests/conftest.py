"""What every test shares: no network, one machine, and real data only where it lies."""

from __future__ import annotations

import os
from pathlib import Path

# Before any library reads them: a look-up on an unreachable hub takes half a minute to fail,
# and a one-machine Ray cluster stays on the loopback interface.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import importlib.util
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support import budget, compiled, postgres, s3
from tests.support.needs import need
from tests.support.places import MEMORY, ROOT, in_memory

gc.disable()  # until all is collected: what is imported stays
budget.load_profile()
if budget.CHOSEN != "nightly" and in_memory():
    # Homes of tests are synced at every commit; whether that reaches a disk is looked at at night.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    os.environ.setdefault("RAY_TMPDIR", "/tmp")  # its sockets stay there
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # asked again: it may have been asked before

SHARED = ROOT.parent / "shared"
STRESS = ROOT / "tests" / "stress"
FIXTURES = {
    "postgres_server": "postgres",
    "chromium": "browser",
    "place": "train",  # tables that are computed
    "runs": "train",  # of the engines, of the pre-training
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what its folder or a fixture tells. What takes longest begins first, what takes minutes
    only with the long budget.

    Of tests of one name pytest-xdist would run one."""
    (name, times), *_ = Counter(item.nodeid for item in items).most_common(1) or [("", 0)]
    if times > 1:
        raise pytest.UsageError(f"{times} tests are called {name}; give each a name of its own")
    for item in items:
        if STRESS in item.path.parents:
            item.add_marker("stress")
        for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(FIXTURES[fixture])
        if item.get_closest_marker("nightly") and budget.CHOSEN != "nightly":
            item.add_marker(pytest.mark.skip(reason="minutes: TACL_TEST_BUDGET=nightly"))
    early = ("ray", "stress", "train", "browser")
    marked = {(one.path, name) for one in items for name in early if one.get_closest_marker(name)}
    items.sort(key=lambda item: [(item.path, name) not in marked for name in early])


def pytest_collection_finish() -> None:
    """What is imported by now stays, and is looked through for garbage no more; the rest more
    seldom than by default, which takes a tenth of the time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def statements() -> Iterator[None]:
    with compiled.once():
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data sets and encoders beside the checkout; skips where there is none."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no real data at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A running server, which other users of the machine cannot reach over the network."""
    driver = importlib.util.find_spec("psycopg") is not None
    binaries = need("postgres", postgres.binaries() if driver else None, postgres.ADVICE)
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path must be short
    folder.chmod(0o755)
    try:
        with postgres.running(binaries, folder / "server") as server:
            yield server
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty registry."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.sqlite'}"
    return request.getfixturevalue("postgres_server").new_database()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[s3.Server]:
    before = dict(os.environ)
    os.environ.update(s3.ENVIRONMENT)
    with s3.running() as server:
        yield server
    for name in s3.ENVIRONMENT:
        os.environ.pop(name)
        if name in before:
            os.environ[name] = before[name]


@pytest.fixture(params=["directory", "s3"])
def storage_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty place for files."""
    if request.param == "directory":
        return str(tmp_path / "storage")
    return request.getfixturevalue("s3_server").new_bucket()


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """As it was: what a process of a home does first closes its files to others."""
    os.umask(before := os.umask(0o022))
    yield
    os.umask(before)
