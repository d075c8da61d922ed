"""The durable and the remote: coordinator, registry, blobs, samples, learners, client.

`from cluster import Client` is all that a user's own program needs; it is imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> object:
    """PEP 562: after the first access the client is an attribute of this module."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cluster.client.client import Client

    globals()[name] = Client
    return Client
