"""The URL of a registry without its secrets: no message shows them, and none of them is stored."""

from __future__ import annotations

import re
from urllib.parse import unquote

from tacl.errors import BadConfig

SECRETS = {  # of the parameters that libpq reads after `?`
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
}
# As SQLAlchemy finds it: whatever characters it has, and after a user with an @ in the name.
PASSWORD = re.compile(r"^((?:[^/]*//|(?![^:/]*://))[^:/]*):.*@", re.DOTALL)


def shown(url: str) -> str:
    """The URL without secrets, for people; any other text too."""
    place, mark, query = PASSWORD.sub(r"\1@", url).partition("?")
    open_to_all = [one for one in query.split("&") if not _is_secret(one)]
    return place + (mark + "&".join(open_to_all) if any(open_to_all) else "")


def require_open(url: str) -> None:
    """Raises BadConfig for secrets: every user of a machine sees what its processes are given."""
    if PASSWORD.search(url) or any(map(_is_secret, url.partition("?")[2].split("&"))):
        raise BadConfig(
            f"the registry's URL {shown(url)} has a password, or the like, which would be stored; "
            "leave it out, and give it as PGPASSWORD, in ~/.pgpass, or in ~/.pg_service.conf "
            "(?service=NAME)"
        )


def _is_secret(parameter: str) -> bool:
    return unquote(parameter.partition("=")[0]).strip().lower() in SECRETS
