"""What people may see of the URL of a registry."""

from __future__ import annotations

import pytest

from cluster.domain.urls import require_open, shown
from cluster.storage.home import Founding
from tacl.errors import BadConfig

SECRETS = {
    "postgresql://u:secret@h/x?sslmode=require": "postgresql://u@h/x?sslmode=require",
    "postgresql://u:sec?ret@secret@h/x": "postgresql://u@h/x",
    "postgresql://u://\nsecret@h/x": "postgresql://u@h/x",
    "postgresql://user@server:secret@h/x": "postgresql://user@server@h/x",
    "postgresql//u:secret@h/x": "postgresql//u@h/x",
    "u:secret@h": "u@h",
    "postgresql://u@h/x?sslkey=/k&sslpassword=secret": "postgresql://u@h/x?sslkey=/k",
    "postgresql://u@h/x?%73slpassword=secret": "postgresql://u@h/x",
    "postgresql://u@h/x?Password=secret&port=1": "postgresql://u@h/x?port=1",
    "postgresql://u@h/x?oauth_client_secret=secret": "postgresql://u@h/x",
}
OPEN = [
    "postgresql://u@h:5432/x?application_name=a%40b&passfile=/p&sslmode=verify-full",
    "postgresql://[::1]:5432/x",
    "postgresql:///x?host=/var/run",
    "sqlite:////home/a:b/x@y.sqlite",
    "sqlite:////a:b/x@y.sqlite",
]


@pytest.mark.parametrize("url", SECRETS)
def test_what_only_its_owner_may_know_is_shown_to_nobody_and_refused(url: str) -> None:
    assert shown(url) == SECRETS[url]
    for refuse in (require_open, lambda url: Founding(registry=url)):  # before a process is told
        with pytest.raises(BadConfig, match="PGPASSWORD") as refused:
            refuse(url)
        assert "secret" not in str(refused.value).replace("oauth_client_secret", "")


@pytest.mark.parametrize("url", OPEN)
def test_anything_else_is(url: str) -> None:
    require_open(url)
    assert shown(url) == url
