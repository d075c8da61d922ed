"""Checks that an answer has only fields that the OpenAPI of the real API declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from cluster.api.app import create_app

Schema = Mapping[str, Any]


@cache
def openapi() -> dict[str, Any]:
    return create_app(cast("Any", None), open_to_all=True).openapi()  # this calls no service


def undeclared(method: str, path: str, answer: Any) -> list[str]:
    """Undeclared fields of the answer, by their place; the path if there is no such route."""
    operation = openapi()["paths"].get(path, {}).get(method.lower())
    if operation is None:
        return [path]
    (success,) = (of for code, of in operation["responses"].items() if code.startswith("2"))
    schema = success["content"]["application/json"]["schema"]
    return [f"{method} {path}: {place}" for place in _unknown(answer, schema, "")]


def _unknown(value: Any, schema: Schema, place: str) -> Iterator[str]:
    kinds = [*_kinds(schema)]
    if isinstance(value, list):
        items = [kind["items"] for kind in kinds if "items" in kind]
        for one in value:
            yield from _unknown(one, {"anyOf": items}, place)
    if isinstance(value, dict):
        of = [kind for kind in kinds if kind.get("type") == "object"]
        for name, one in value.items():
            fits = [kind["properties"][name] for kind in of if name in kind.get("properties", {})]
            fits += [kind["additionalProperties"] for kind in of if _is_open(kind)]
            if not fits:
                yield f"{place}.{name}"
            yield from _unknown(one, {"anyOf": fits}, f"{place}.{name}") if fits else ()


def _is_open(kind: Schema) -> bool:
    return isinstance(kind.get("additionalProperties"), dict)


def _kinds(schema: Schema) -> Iterator[Schema]:
    """The alternatives of a schema, with references resolved."""
    if "$ref" in schema:
        schema = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", schema.get("oneOf", [schema])):
        yield from [one] if one is schema else _kinds(one)


class Declared(APIRoute):
    """A route of a fake API: `app.state.undeclared` collects fields that the real API lacks."""

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            response = await handler(request)
            if isinstance(response, JSONResponse) and response.status_code < 400:
                given = request.method, self.path, json.loads(bytes(response.body))
                request.app.state.undeclared += undeclared(*given)
            return response

        return answered
