"""A home with two trained tasks, on a base of random weights."""

from __future__ import annotations

import pytest

from tests.support import tiny
from tests.support.learned import Scene, new_task, train


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    home = tiny.home(tmp_path_factory.mktemp("home"))
    tasks = [new_task(home, number) for number in (1, 2)]
    generic = tiny.generic(home)
    first = train(home, tasks[0], tiny.LeaseClient(generic))
    second = train(home, tasks[1], tiny.LeaseClient(generic, tiny.shard_of(tasks[0])))
    return Scene(home, tasks, [first, second])
