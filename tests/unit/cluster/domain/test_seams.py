"""What travels between rooms and processes has a type, all the way down."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import cluster.domain
from cluster.domain.api import CoordinatorAPI, RunAPI
from cluster.domain.base import Message

APIS = (CoordinatorAPI, RunAPI)
METHODS = [getattr(api, name) for api in APIS for name in dir(api) if not name.startswith("_")]


def parts(kind: Any) -> Iterator[Any]:
    yield kind
    for one in get_args(kind):
        yield from parts(one)


def messages() -> list[type[Message]]:
    for module in pkgutil.iter_modules(cluster.domain.__path__, "cluster.domain."):
        import_module(module.name)
    found, waiting = [], [Message]
    while waiting:
        found.append(one := waiting.pop())
        waiting += one.__subclasses__()
    return [one for one in found if one.__module__.startswith("cluster.domain.")]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_a_method_is_asked_and_answers_with_types(method: Any) -> None:
    for name, kind in get_type_hints(method).items():
        assert not {Any, object} & {one for one in parts(kind) if not isinstance(one, list)}, name
    assert get_origin(get_type_hints(method)["return"]) is not dict


def test_no_message_has_a_field_of_anything() -> None:
    kinds = {
        f"{one.__name__}.{name}": [*parts(field.annotation)]
        for one in messages()
        for name, field in one.model_fields.items()
    }
    assert len(kinds) > 100
    assert [name for name, found in kinds.items() if Any in found or object in found] == []
