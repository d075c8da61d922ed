"""Features of a model, asked by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
from fastapi.testclient import TestClient

from cluster.api import limits
from cluster.data.amounts import TEXT_CHARACTERS
from tests.support.api_scene import Local, scene
from tests.unit.cluster.api.test_api import PEOPLE, Person

As = Callable[[str], openai.OpenAI]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[As, Local]]:
    app, service = scene(tmp_path / "home", **PEOPLE)
    with TestClient(app, raise_server_exceptions=False) as http:
        Person(http, "ann").submit("news")
        Person(http, "ann").get("status")
        Person(http, "eve").post("compositions", {"terms": ["+news"]})
        yield (
            lambda name: openai.OpenAI(
                base_url="http://testserver/v1",
                api_key=f"token of {name}",
                http_client=http,
                max_retries=0,
            ),
            service,
        )


def test_an_embedding_of_each_text(world: tuple[As, Local]) -> None:
    """As the client asks by default, in base64, and as numbers."""
    who, service = world
    texts = ["one", "four"]
    for form in (openai.omit, "float"):
        found = who("eve").embeddings.create(model="eve", input=texts, encoding_format=form)
        assert [one.index for one in found.data] == [0, 1]
        assert found.data[0].embedding == [0.5, 1.0]
        assert found.data[1].embedding == pytest.approx([0.5, 4 / 3])
        assert found.model == "eve"
    one = who("eve").embeddings.create(model="eve", input="alone")
    assert [len(each.embedding) for each in one.data] == [2]
    asked = service.questions[-1]
    assert (asked.model.user, asked.inputs, asked.features) == ("eve", ["alone"], True)


def test_nobody_embeds_with_somebody_elses_model(world: tuple[As, Local]) -> None:
    who, _ = world
    with pytest.raises(openai.NotFoundError) as told:
        who("bob").embeddings.create(model="eve", input="x")
    assert told.value.response.json()["message"] == "there is no user eve here"
    with pytest.raises(openai.AuthenticationError):
        who("mallory").embeddings.create(model="eve", input="x")
    assert who("root").embeddings.create(model="eve", input="x").data


def test_what_is_refused(world: tuple[As, Local]) -> None:
    who, service = world
    eve = who("eve").embeddings
    for given in ("", [], ["x"] * (limits.INPUTS + 1), [[1, 2]]):
        with pytest.raises(openai.UnprocessableEntityError):
            eve.create(model="eve", input=given)
    with pytest.raises(openai.UnprocessableEntityError) as told:
        eve.create(model="eve", input="x", dimensions=2)
    assert "dimensions" in told.value.response.json()["message"]
    with pytest.raises(openai.APIStatusError) as large:
        eve.create(model="eve", input=["x" * TEXT_CHARACTERS] * 7)
    assert large.value.status_code == 413
    assert not service.questions
