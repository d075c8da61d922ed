"""The stand-in of the page's tests is held to the OpenAPI (`tests.support.declared`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.declared import openapi, undeclared

VECTOR = {"task": "news", "version": 1}


@pytest.mark.parametrize(
    ("path", "answer", "found"),
    [
        ("/v1/me", {"user": "ann", "role": "user"}, []),
        ("/v1/me", {"user": "ann", "rank": 1}, ["GET /v1/me: .rank"]),
        ("/v1/compositions/{user}", {"terms": [{"vector": VECTOR}]}, []),
        ("/v1/compositions/{user}", {"terms": [{"vectors": VECTOR}]}, [".terms.vectors"]),
        ("/v1/accuracy", {"rows": [{"accuracies": {"any task": 0.5}}]}, []),
        ("/v1/accuracies", {}, ["/v1/accuracies"]),
    ],
)
def test_what_the_api_does_not_have_is_found(path: str, answer: Any, found: list[str]) -> None:
    told = undeclared("GET", path, answer)
    assert len(told) == len(found)
    assert all(one.endswith(end) for one, end in zip(told, found, strict=True))


def test_every_answer_has_a_form() -> None:
    """JSON of a success is a message, or a list of them: nothing else could be told of it. Figures
    are text."""
    answers = {
        f"{verb} {path}": answer["content"]["application/json"]["schema"]
        for path, of in openapi()["paths"].items()
        for verb, operation in of.items()
        for code, answer in operation["responses"].items()
        if code.startswith("2") and answer.get("content", {}).keys() == {"application/json"}
    }
    assert len(answers) > 30
    forms = {name: schema.get("items", schema) for name, schema in answers.items()}
    assert [name for name, form in forms.items() if "$ref" not in form] == []
