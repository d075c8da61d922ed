"""Whether an address is of this machine alone."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def on_loopback(address: str) -> bool:
    """Whether HOST:PORT is of this machine alone."""
    return is_loopback(address.rpartition(":")[0].strip("[]"))
