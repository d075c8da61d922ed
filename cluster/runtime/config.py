"""The answers given to `tacl init`, defaults of the options of `tacl up`: HOME/tacl.toml."""

from __future__ import annotations

import json
import tomllib

from pydantic import Field, ValidationError

from cluster.domain.base import Message, each_wrong
from cluster.storage.drafts import atomic_write
from cluster.storage.home import ANSWERS, Home
from tacl.errors import BadConfig

HEAD = (
    "# Read by `tacl up`; its flags come first. The base model stays as the first `up` found it.\n"
)


class Config(Message):
    base: str | None = None  # as `up --base`
    generic: str | None = None
    cpus: int | None = Field(default=None, ge=1)


def read(home: Home) -> Config:
    """Read the file; an empty Config if there is none. Raises BadConfig."""
    path = home.path / ANSWERS
    try:
        return Config.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Config()
    except NotADirectoryError as error:
        raise BadConfig(
            f"{home.path} is a file, and a home is a folder; name another with --home"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        anew = home.command("init")
        raise BadConfig(f"{path} cannot be read: {error}; write it anew: {anew}") from error
    except ValidationError as error:
        mend = f"mend it, or {home.command('init')}"
        raise BadConfig(f"{path}: {each_wrong(error.errors())}; {mend}") from error


def require_new(home: Home) -> None:
    """Raise BadConfig if the home is founded already."""
    if settings := home.settings():
        raise BadConfig(
            f"{home.path} is a home already, with the base model {settings.base.spec}; "
            f"start it: {home.command('up')}"
        )


def write(home: Home, config: Config) -> str:
    """Write the file and return its path. Raises BadConfig if the home is founded already."""
    require_new(home)
    home.close_to_others()
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in config
        if value is not None
    ]
    path = home.path / ANSWERS
    with atomic_write(path) as file:
        file.write((HEAD + "".join(lines)).encode())
    return str(path)
