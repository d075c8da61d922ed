"""The client's table of operations is held to the protocol, and to the routes that it asks."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_type_hints

import pytest
from fastapi.routing import APIRoute

from cluster.api import compositions, tasks, users
from cluster.client.http import OPERATIONS, Server
from cluster.domain.api import CoordinatorAPI
from tacl.errors import NotAllowed
from tests.support.declared import openapi

BY_HAND = {"cluster", "evaluate", "evaluation"}  # of several requests, or of a part of an answer
UPLOADED = {"admit", "submit", "start_composition"}  # with their rows: methods of `Server`
OF_THE_HOME = {"add_samples", "collect", "compare", "refresh", "refreshed", "remove", "references"}
OF_SERVERS = {"compositions", "figures", "holder", "holders", "version"}  # never asked by people
METHODS = {name for name in dir(CoordinatorAPI) if not name.startswith("_")}
GROUPS = (tasks, compositions, users)
ROUTES = [one for of in GROUPS for one in of.ROUTER.routes if isinstance(one, APIRoute)]


def parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def unnamed(path: str) -> str:
    """With holes alone, which client and routes may call differently."""
    return re.sub(r"\{\w+\}", "{}", path)


def schema_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Of the body; of none where it takes none."""
    if "requestBody" not in operation:
        return {}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    return openapi()["components"]["schemas"][name] if name else schema


def declared(verb: str, path: str) -> tuple[set[str], set[str]]:
    """What a route takes beside its path and headers, and what of it must be there."""
    (found,) = (of for one, of in openapi()["paths"].items() if unnamed(one) == f"/v1/{path}")
    operation = found[verb.lower()]
    query = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
    needed = {one["name"] for one in query if one.get("required")}
    body = schema_of(operation)
    takes = {one["name"] for one in query} | set(body.get("properties", ()))
    return takes, needed | set(body.get("required", ()))


def test_every_method_is_asked_over_http_or_is_said_not_to_be() -> None:
    ways = [set(OPERATIONS), BY_HAND, UPLOADED, OF_THE_HOME, OF_SERVERS]
    assert sum(map(len, ways)) == len(METHODS), "a method is in two of these, or in none"
    assert set.union(*ways) == METHODS
    remote = Server("http://test").coordinator
    for method in UPLOADED | OF_THE_HOME | OF_SERVERS:
        with pytest.raises(NotAllowed, match=method):
            getattr(remote, method)
    for method in BY_HAND | {"move_alias"}:
        declared = [one.name for one in parameters(getattr(CoordinatorAPI, method))][1:]
        assert [one.name for one in parameters(getattr(remote, method))] == declared


@pytest.mark.parametrize("method", OPERATIONS)
def test_an_operation_is_a_route_with_these_parameters(method: str) -> None:
    verb, path = OPERATIONS[method]
    given = parameters(getattr(CoordinatorAPI, method))
    holes = set(re.findall(r"\{(\w+)\}", path))
    names = {one.name for one in given} - {"self", "context"}
    assert holes <= names
    takes, needed = declared(verb, unnamed(path))
    sent = names - holes
    assert needed <= sent <= takes


@pytest.mark.parametrize("method", OPERATIONS)
def test_a_route_answers_what_the_method_does(method: str) -> None:
    verb, path = OPERATIONS[method]
    place = unnamed(f"/{path}")
    (route,) = (one for one in ROUTES if unnamed(one.path) == place and verb in (one.methods or ()))
    answered = get_type_hints(route.endpoint)["return"]
    assert answered == get_type_hints(getattr(CoordinatorAPI, method))["return"]
