"""Reports now and then what a starting server waits for, which Ray Serve (2.60) does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ray._private.state import available_resources_per_node
from ray.exceptions import RayError

from cluster.runtime.nodes import held_by
from cluster.storage.home import Serving

FIRST = 5.0  # seconds until the first report; the pause then doubles, up to RARELY
RARELY = 60.0
Say = Callable[[str], None]


@contextmanager
def saying(asked: Serving, say: Say) -> Iterator[None]:
    """Report while the block runs, in which the server starts."""
    ended, since = threading.Event(), time.monotonic()

    def tell() -> None:
        pause = FIRST
        while not ended.wait(pause):
            with suppress(RayError):  # if the cluster is lost, the block itself raises
                is_placed = bool(held_by(lambda name: "#predictor#" in name))
                free = available_resources_per_node().values()
                say(awaited(asked, is_placed, free, time.monotonic() - since))
            pause = min(2 * pause, RARELY)

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        ended.set()
        telling.join()


def awaited(
    asked: Serving, is_placed: bool, free: Iterable[Mapping[str, float]], seconds: float
) -> str:
    """What a server that began to start `seconds` ago waits for. `free`: resources of each node."""
    wanted = {"CPU": asked.cpus, "GPU": asked.gpus}
    has_room = any(all(node.get(name, 0) >= wanted[name] for name in wanted) for node in free)
    if is_placed or has_room:
        return f"waited {seconds:.0f} s for a predictor to load the base model"
    room = " and ".join(f"{amount:g} {name}" for name, amount in wanted.items() if amount)
    return f"waited {seconds:.0f} s for a run to end (tacl status): no node has {room} free"
