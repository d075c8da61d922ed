"""What a loop does by itself, without a clock: on a busy machine time alone does not show it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

TURNS = 100  # of the loop: more than anything takes that waits for no thread and no timer


async def settled() -> None:
    """Lets everything do what it can."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def begun(works: Iterable[Coroutine[Any, Any, Any]]) -> list[asyncio.Task[Any]]:
    """Tasks that have come as far as they can."""
    tasks = [asyncio.create_task(work) for work in works]
    await settled()
    return tasks
