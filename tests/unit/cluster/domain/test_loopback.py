"""What is of this machine alone is told by the address, not by how its name begins."""

from __future__ import annotations

import pytest

from cluster.domain.loopback import on_loopback


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1:6379", True),
        ("127.8.0.1:0", True),
        ("localhost:6379", True),
        ("[::1]:6379", True),
        ("10.0.0.1:6379", False),
        ("127.example.com:6379", False),
        ("", False),
    ],
)
def test_an_address_is_of_this_machine(address: str, here: bool) -> None:
    assert on_loopback(address) == here
