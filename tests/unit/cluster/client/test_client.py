from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from cluster.client import task_operations
from cluster.client.client import Client, default_home
from cluster.client.waiting import pending
from cluster.domain.base import RequestContext
from cluster.domain.operations import Belonging, Candidate
from cluster.domain.status import Event
from cluster.runtime.connection import unwrapped
from cluster.runtime.launch import absolute, absolute_data
from cluster.storage.home import Founding
from tacl.errors import (
    BadConfig,
    BadName,
    BadRecipe,
    BadSample,
    BaseNotFound,
    ClusterNotRunning,
    DataNotFound,
    HomeInUse,
    ModalityMismatch,
    NameTaken,
    NoComposition,
    RunFailed,
    UnknownTask,
    UnknownVector,
)
from tests.support.fakes import new_home
from tests.support.instant import PICTURES, Guess, InProcess, Instant


@pytest.fixture
def launcher(tmp_path: Path) -> Instant:
    return Instant(home=new_home(tmp_path / "home"))


@pytest.fixture
def client(tmp_path: Path, launcher: Instant) -> Client:
    coordinator = InProcess(tmp_path / "home", launcher)
    return Client(tmp_path / "home", coordinator=coordinator, predictor=Guess())


def test_the_whole_way(client: Client, data: Path) -> None:
    understood, seen = [], []
    how = {"workers": 2, "owner": "ann", "refresh": "never"}
    submitted = client.submit("one", data, read=understood.append, **how)
    assert (submitted.task, submitted.state) == ("one", "queued")
    assert understood[0].classes == ("a", "b")
    client.submit("two", data, again=True, penalty="none")
    status = client.wait(progress=seen.append, poll=0)
    assert [task.state for task in status.tasks] == ["ready", "ready"]
    assert status.tasks[0].owner == "ann"
    assert seen[-1] == status
    assert pending(status) == []
    assert client.task("one").name == "one"
    assert {(v.task, v.version) for v in client.vectors()} == {
        ("one", 1),
        ("two", 1),
        ("two", 2),  # trained without a penalty, it made way for the other
    }
    assert client.interference().missing == 0
    model = client.compose("alice", ["+one", "-0.5*two"])
    assert [term.coefficient for term in model.terms] == [1.0, -0.5]
    assert client.composition("alice") == model
    assert client.evaluate("alice").normalized == 0.97
    asked = client.query("alice", ["what is this?"])
    assert asked.best == (Candidate(task="one", label="a", probability=0.75),)
    assert asked.belonging == (Belonging(probability=0.875, none=False),)
    assert asked.model_dump(mode="json")["best"] == [asked.best[0].model_dump()]
    answer = client.query("alice", ["what is this?"], ["two"])
    assert answer.best == ()
    assert answer.digest == model.digest
    assert answer.answers == ({"two": [("a", 0.75), ("b", 0.25)]},)
    assert answer.model_dump(mode="json")["answers"] == [{"two": [["a", 0.75], ["b", 0.25]]}]
    assert client.users()[0].user == "alice"
    assert client.logs("one")
    assert client.refreshed(client.refresh("one").run_id).reason == "less interference"


def test_a_server_of_before_that_tells_all_events_each_time_is_understood(
    client: Client, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit("one", data)
    asked, tell = list[int](), client.coordinator.logs

    def of_before(context: RequestContext, task: str, after: int = 0) -> Sequence[Event]:
        asked.append(after)
        assert len(asked) < 3
        return tell(context, task)

    monkeypatch.setattr(client.coordinator, "logs", of_before)
    assert client.logs("one") == tell(RequestContext(), "one")


def test_the_same_request_is_answered_once(client: Client, data: Path) -> None:
    first = client.submit("one", data, request_id="r1")
    assert client.submit("one", data, request_id="r1") == first
    assert len(client.status().tasks) == 1


def test_of_some_tasks_as_many_as_are_named(
    client: Client, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        client.submit(name, data, again=True)
    whole = client.wait(poll=0)
    names = [task.name for task in client.wait("three", "one", "three", poll=0).tasks]
    assert names == ["one", "three"]
    monkeypatch.setattr(task_operations, "NAMED", 1)
    assert [task.name for task in client.status("three", "one", "three").tasks] == ["three", "one"]
    assert client.status().tasks == whole.tasks  # what was told of all is still known
    for ask in (client.status, client.wait):
        with pytest.raises(UnknownTask):
            ask("one", "four")


def test_samples_grow(client: Client, data: Path, tmp_path: Path) -> None:
    client.submit("one", data)
    (tmp_path / "more.txt").write_text("\n".join(f"more {i}" for i in range(20)))
    assert client.add_samples("one", tmp_path / "more.txt").added == 20
    with pytest.raises(UnknownTask):
        client.add_samples("none", tmp_path / "more.txt")


def test_a_failed_run_says_why_and_is_retried(
    client: Client, launcher: Instant, data: Path
) -> None:
    launcher.broken = {"one"}
    launcher.paused = True
    client.submit("one", data)
    client.submit("two", data, again=True)
    with pytest.raises(RunFailed, match="one: .*not a number at step 3.*tacl retry"):
        client.wait(progress=lambda status: setattr(launcher, "paused", False), poll=0)
    client.wait("two", poll=0)
    launcher.broken.clear()
    assert len(client.retry("one").retried) == 1
    assert client.wait("one", poll=0).tasks[0].state == "ready"


def test_what_had_failed_before_fails_no_wait_but_its_own(
    client: Client, launcher: Instant, data: Path
) -> None:
    launcher.broken = {"one"}
    client.submit("one", data)
    with pytest.raises(RunFailed, match="one: .*not a number"):
        client.wait("one", poll=0)
    client.submit("two", data, again=True)
    assert [task.state for task in client.wait(poll=0).tasks] == ["failed", "ready"]
    launcher.paused = True
    client.submit("three", data, again=True)
    with pytest.raises(RunFailed, match="one: .*not a number"):  # and not once three is ready
        client.wait("three", "one", poll=0, timeout=5)


def test_wait_for_what_is_not_there(client: Client) -> None:
    with pytest.raises(UnknownTask, match="no task is named x; there is none yet"):
        client.wait("x")


def test_wait_gives_up(client: Client, launcher: Instant, data: Path) -> None:
    client.submit("one", data)
    launcher.paused = True
    with pytest.raises(TimeoutError, match="one"):
        client.wait("one", poll=0.01, timeout=0.05)


def test_refused_before_anything_is_read(client: Client, data: Path) -> None:
    client.submit("one", data)
    nowhere = "no/such/data"
    with pytest.raises(NameTaken):
        client.submit("one", nowhere)
    for name in ("a b", "-x", "a/b", "", "generic", "x" * 65):
        with pytest.raises(BadName):
            client.submit(name, nowhere)
    with pytest.raises(BadConfig, match=r"workers: .*greater"):
        client.submit("two", nowhere, workers=0)
    with pytest.raises(BadConfig, match="colour"):
        client.submit("two", nowhere, colour="blue")  # pyright: ignore[reportCallIssue]
    with pytest.raises(BadConfig, match="{}"):
        client.submit("two", nowhere, templates=["a photo"])
    with pytest.raises(DataNotFound):
        client.submit("two", nowhere)
    assert len(client.status().tasks) == 1


def test_pictures_are_no_texts(client: Client, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / name / f"{number}.png")
    with pytest.raises(ModalityMismatch):
        client.submit("one", tmp_path / "pictures")
    with pytest.raises(ModalityMismatch):
        client.add_samples(client.submit("t", lines(tmp_path)).task, tmp_path / "pictures")


def lines(tmp_path: Path) -> Path:
    rows = ["text,label", *(f"sentence {i},{'ab'[i % 2]}" for i in range(40))]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    return tmp_path / "rows.csv"


def test_bad_recipes_and_questions(client: Client, data: Path) -> None:
    with pytest.raises(NoComposition, match="tacl compose alice"):
        client.query("alice", ["x"])
    with pytest.raises(NoComposition):
        client.evaluate("alice")
    client.submit("one", data)
    with pytest.raises(UnknownVector, match="one"):
        client.compose("alice", ["+one"])  # not trained yet
    client.wait(poll=0)
    with pytest.raises(UnknownTask):
        client.compose("alice", ["+two"])
    with pytest.raises(UnknownVector, match="7"):
        client.compose("alice", ["+one@v7"])
    with pytest.raises(BadRecipe):
        client.compose("alice", ["+one", "one"])
    with pytest.raises(BadName):
        client.compose("al ice", ["+one"])
    client.compose("alice", ["one"])
    with pytest.raises(BadSample, match="blank"):
        client.query("alice", ["  "])


def test_a_question_is_a_picture_where_the_base_reads_pictures(tmp_path: Path) -> None:
    home = new_home(tmp_path / "images", PICTURES)
    client = Client(
        home.path, coordinator=InProcess(home.path, Instant(home=home)), predictor=Guess()
    )
    for name in "ab":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / "pictures" / name / f"{i}.png")
    client.submit("one", tmp_path / "pictures")
    client.wait(poll=0)
    client.compose("alice", ["one"])
    picture = tmp_path / "pictures/a/1.png"
    by_path, by_bytes = (client.query("alice", [one]) for one in (picture, picture.read_bytes()))
    assert by_path.answers == by_bytes.answers
    with pytest.raises(DataNotFound, match=r"none\.png"):
        client.query("alice", [tmp_path / "none.png"])
    with pytest.raises(BadSample, match="picture"):
        client.query("alice", [io.BytesIO(b"no").getvalue()])


def test_without_a_cluster(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    with pytest.raises(ClusterNotRunning, match="tacl up --home"):
        client.status()
    with pytest.raises(ClusterNotRunning):
        client.submit("one", "data")
    with pytest.raises(BadConfig, match="--base"):
        client.up()
    assert client.down() is False
    assert not (tmp_path / "home").exists()
    new_home(tmp_path / "home")
    with pytest.raises(HomeInUse, match="fake:encoder"):
        client.up("hf:other")


def test_the_default_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TACL_HOME", str(tmp_path / "x"))
    assert Client().home.path == default_home() == tmp_path / "x"
    monkeypatch.setenv("TACL_HOME", "")  # not the folder that it is asked from
    assert default_home() == Path.home() / ".tacl"
    monkeypatch.setenv("TACL_HOME", "~nobody-there/home")
    assert default_home() == Path("~nobody-there/home")
    monkeypatch.delenv("TACL_HOME")
    assert default_home() == Path.home() / ".tacl"


def test_an_address_is_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACL_HOME", "http://127.0.0.1:8300")
    for home in (None, Path("https://tacl.example")):
        with pytest.raises(BadConfig, match="a home is a directory"):
            Client(home)
    Client("http://127.0.0.1:8300")


def test_a_base_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert absolute(Founding(base="hf:model?size=9")).base == f"hf:{tmp_path}/model?size=9"
    with pytest.raises(BaseNotFound, match="gone.safetensors"):  # at once, and by no process
        absolute(Founding(base="timm:net@gone.safetensors"))
    assert absolute_data("model") == f"{tmp_path}/model"
    assert absolute_data("org/name") == "org/name"


def test_errors_of_the_cluster_are_unwrapped() -> None:
    from ray.exceptions import RayTaskError

    inside = RayTaskError("submit", "a long trace", UnknownTask("no task x"))
    assert unwrapped(inside) is inside.cause
    defect = RayTaskError("submit", "a long trace", KeyError("x"))
    assert unwrapped(defect) is defect


def test_a_client_is_light() -> None:
    code = (
        "import sys, cluster.client.client, cluster.runtime.launch; "
        "print([m for m in ('torch', 'ray', 'datasets', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_who_has_no_name_here_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    assert Client("http://127.0.0.1:9").user == str(os.getuid())
