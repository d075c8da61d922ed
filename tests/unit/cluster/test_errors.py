from __future__ import annotations

import inspect

import pytest

from cluster import errors
from tacl import errors as domain


def classes() -> list[type[Exception]]:
    return [
        cls
        for _, cls in inspect.getmembers(domain, inspect.isclass)
        if issubclass(cls, domain.TaclError) and cls is not domain.TaclError
    ]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_error_has_its_own_exit_code(cls: type[Exception]) -> None:
    code = errors.exit_code(cls("x"))
    assert 2 < code < 126  # 0 success, 1 defect, 2 usage; from 126 the shell's own
    assert [c for c in classes() if errors.exit_code(c("x")) == code] == [cls]
    assert 400 <= errors.http_status(cls("x")) < 600


def test_a_subclass_has_the_code_of_its_parent() -> None:
    class WrongPath(domain.DataNotFound):
        pass

    assert errors.exit_code(WrongPath("x")) == errors.exit_code(domain.DataNotFound("x")) != 1


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_an_error_arrives_by_its_name(cls: type[Exception]) -> None:
    class Narrower(cls):
        pass

    assert errors.NAMES[errors.name_of(Narrower("x"))] is cls


def test_a_defect_is_not_an_answer() -> None:
    assert errors.exit_code(KeyError("x")) == 1
    assert errors.http_status(KeyError("x")) == 500
