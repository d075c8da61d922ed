"""What is durable and what is remote: coordinator, registry, blobs, samples, learners, client.

`from cluster import Client` is what a person's own program needs; it is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> object:
    """PEP 562: asked once, the client is an attribute of this module from then on."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cluster.client.client import Client

    globals()[name] = Client
    return Client
