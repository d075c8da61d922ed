"""Who answers on the machine of a home: the predictors of its server, else one of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.api.limits import INPUTS
from cluster.api.service import Answered, Question
from cluster.runtime import connection, local_socket
from cluster.serving import app
from cluster.serving.local import HomePredictor
from cluster.storage.home import Home
from tacl.errors import BadSample, NotAllowed, TooLarge, TooLate
from tests.support.fakes import new_home
from tests.unit.cluster.serving.test_app import Handle, ingress, question


def test_who_may_read_the_home_asks_a_server_without_ray(monkeypatch) -> None:
    """On its machine, by a socket; an error comes as it is."""

    async def story(home: Path) -> None:
        handle = Handle()
        handle.open.set()
        served = ingress(handle, monkeypatch, str(home))
        asked = partial(local_socket.ask, home, "predict", name=local_socket.PREDICTORS)
        answered = await asyncio.to_thread(asked, [question("ann")])
        assert answered == await served.predict(question("ann"))
        with pytest.raises(BadSample, match="odd"):
            await asyncio.to_thread(asked, [replace(question("ann"), inputs=["odd"])])
        with pytest.raises(NotAllowed):
            await asyncio.to_thread(local_socket.ask, home, "prepare", [], local_socket.PREDICTORS)
        with pytest.raises(BadSample):  # before it is decoded
            await asyncio.to_thread(asked, [replace(question("ann"), inputs=[b"no picture"])])
        handle.open.clear()
        monkeypatch.setattr(app, "LONGEST", 0.1)
        with pytest.raises(TooLate):  # and no second base is loaded for it
            await asyncio.to_thread(asked, [question("ann")])

    with tempfile.TemporaryDirectory(prefix="near") as folder:  # a short name, as a socket needs
        asyncio.run(story(Path(folder)))


SERVER, OWN = (Answered([{who: []}]) for who in ("the server", "its own"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (question("ann"), SERVER),
        (replace(question("ann"), inputs=["x"] * INPUTS), SERVER),
        (replace(question("ann"), inputs=["x"] * (INPUTS + 1)), OWN),
        (replace(question("ann"), inputs=["large"]), OWN),
    ],
)
def test_what_is_much_is_asked_of_ones_own_predictor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Question, expected: Answered
) -> None:
    """More than a server is asked at once, or than it takes."""

    def served(home: Path, method: str, given: Sequence[Any], name: str) -> Answered:
        assert (home, method, name) == (tmp_path / "home", "predict", local_socket.PREDICTORS)
        if given[0].inputs == ["large"]:
            raise TooLarge("too many pixels")
        return SERVER

    home = Home(new_home(tmp_path / "home").path)
    monkeypatch.setattr("cluster.runtime.served.running", lambda home: None)
    monkeypatch.setattr(connection, "call_with_retries", lambda *given: OWN)
    monkeypatch.setattr(local_socket, "ask", served)
    assert HomePredictor(home).ask(asked) == expected
    monkeypatch.setattr(local_socket, "ask", nobody)
    assert HomePredictor(home).ask(asked) == OWN


def nobody(*given: object) -> Answered:
    raise local_socket.NoListener
