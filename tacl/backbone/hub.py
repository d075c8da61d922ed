"""Looking things up on the Hugging Face hub within a bounded time.

The libraries that download weights retry an unreachable hub for half a minute and then blame
something else. Here the hub is queried once, briefly; when it does not answer, they are made to
use their cache alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import huggingface_hub
from huggingface_hub import constants

SECONDS = 5.0


def reachable() -> bool:
    """Whether the hub answers at all, in about SECONDS at most (name look-up included)."""
    if constants.HF_HUB_OFFLINE:
        return False
    answered = threading.Event()
    # In a thread, because a name look-up ignores the HTTP client's time limit.
    threading.Thread(target=_ask, args=(answered,), daemon=True).start()
    return answered.wait(SECONDS)


def _ask(answered: threading.Event) -> None:
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # whatever the reason, the answer is: not reachable
        return
    answered.set()


@contextmanager
def within_reach() -> Iterator[str]:
    """Inside, downloads work when the hub answers and fail at once when it does not.

    Yields a phrase for error messages: the places that were searched.
    """
    before = constants.HF_HUB_OFFLINE
    online = reachable()
    constants.HF_HUB_OFFLINE = not online
    try:
        yield _where(online, before)
    finally:
        constants.HF_HUB_OFFLINE = before


def _where(online: bool, forbidden: bool) -> str:
    cache = f"the local cache {constants.HF_HUB_CACHE}"
    if online:
        return f"{cache} and the hub {constants.ENDPOINT}"
    if forbidden:
        return f"{cache} alone (HF_HUB_OFFLINE is set)"
    return f"{cache} alone (the hub {constants.ENDPOINT} gave no answer within {SECONDS:g} s)"


def first_line(error: BaseException) -> str:
    """First paragraph of a library's error, on one line of about 400 characters at most."""
    text = str(error).strip() or type(error).__name__
    line = " ".join(text.split("\n\n")[0].split())
    return line if len(line) <= 400 else line[:400] + " ..."
