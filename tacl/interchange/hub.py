"""Repositories of a Hugging Face hub: uploading exports, downloading checkpoints and vectors.

The content of a repository is hostile until checked: its list of files is checked before any is
downloaded, weights are downloaded only as safetensors, and all files are of one commit. The hub's
client takes the token from the user's environment (HF_TOKEN, or `hf auth login`); this file never
reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants
from huggingface_hub import errors as hf_errors

from tacl.backbone.hub import SECONDS, first_line, reachable
from tacl.errors import (
    BadCheckpoint,
    BadConfig,
    BadName,
    NotAllowed,
    NotAuthenticated,
    StorageUnavailable,
    TaclError,
)
from tacl.interchange.adapter import CONFIG
from tacl.interchange.reading import FILES, PICKLED
from tacl.interchange.vector_file import VECTOR
from tacl.interchange.writing import HEADS

SCHEME = "hf:"
NAME = re.compile(r"hf:(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)
LOGIN = "Set HF_TOKEN, or log in with `hf auth login`."
ADAPTER = "adapter_model.safetensors"
OF_WEIGHTS = (".safetensors", *PICKLED, ".index.json", CONFIG)  # how names of such files end
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


@dataclass(frozen=True)
class Repository:
    """OWNER/NAME on the hub; a revision is a branch, a tag or a commit, None the main branch."""

    name: str
    revision: str | None = None

    @staticmethod
    def parse(text: str) -> Repository:
        """The repository that `text` names, hf:OWNER/NAME[@REVISION]. Raises BadName."""
        found = NAME.fullmatch(text)
        if found is None:
            raise BadName(f"{text!r} is no repository of a hub; write hf:OWNER/NAME[@REVISION]")
        return Repository(found[1], found[2])

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_repository(text: str) -> bool:
    return text.startswith(SCHEME)


# -- in


@contextmanager
def fetched(place: Repository, most: int) -> Iterator[tuple[Path, str]]:
    """Yields a temporary folder with the repository's weights, and their source as
    hf:OWNER/NAME@COMMIT.

    `most`: the largest total size in bytes. Raises BadCheckpoint if there is no such repository or
    revision, or nothing in it may be fetched, and StorageUnavailable.
    """
    _require_reachable(place)
    with TemporaryDirectory(prefix="tacl-hub-") as folder:
        with _telling(place):
            commit = _fetch(place, Path(folder), most)
        yield Path(folder), f"{SCHEME}{place.name}@{commit}"


def _fetch(place: Repository, folder: Path, most: int) -> str:
    api = HfApi()
    info = api.model_info(place.name, revision=place.revision, files_metadata=True)
    sizes = {one.rfilename: one.size for one in info.siblings or ()}
    commit = str(info.sha)
    for name in wanted(place, sizes, most):
        api.hf_hub_download(place.name, name, revision=commit, local_dir=folder)
        found = (folder / name).stat().st_size
        if found != sizes[name]:
            raise BadCheckpoint(
                f"{name} of {place} has {found} bytes, and was to have {sizes[name]}"
            )
    return commit


def wanted(place: Repository, sizes: Mapping[str, int | None], most: int) -> tuple[str, ...]:
    """The files to fetch of a repository with these files: a vector, else an adapter, else a
    checkpoint. Raises BadCheckpoint if there are none, or they are too large."""
    odd = [name for name in sizes if not _is_plain(name)]
    if odd:
        raise BadCheckpoint(f"{place} has files of other folders, {odd[:3]}; nothing was fetched")
    names = _weights(place, sizes)
    unknown = [name for name in names if sizes[name] is None]
    size = sum(sizes[name] or 0 for name in names)
    if unknown or size > most:
        raise BadCheckpoint(
            f"{', '.join(names)} of {place} have {'unknown' if unknown else size} bytes, and a "
            f"checkpoint of this base has at most {most}; nothing was fetched"
        )
    return names


def _is_plain(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        name.isprintable()
        and "\\" not in name
        and not path.is_absolute()
        and (".." not in path.parts)
    )


def _weights(place: Repository, names: Mapping[str, Any]) -> tuple[str, ...]:
    if VECTOR in names:
        return (VECTOR, HEADS) if HEADS in names else (VECTOR,)
    if CONFIG in names and ADAPTER in names:
        return (CONFIG, ADAPTER)
    tensors = [name for name in FILES if name in names and not name.endswith(PICKLED)]
    if tensors and tensors[0].endswith(".index.json"):
        return (tensors[0], *sorted(name for name in names if SHARD.fullmatch(name)))
    if tensors:
        return (tensors[0],)
    pickled = [name for name in names if name.endswith(PICKLED)]
    if pickled:
        raise BadCheckpoint(
            f"{place} has its weights as {pickled[0]}, which could be a program; of a hub only "
            "safetensors are fetched. Ask its owner for these, or download and convert it yourself"
        )
    known = (VECTOR, ADAPTER, *(name for name in FILES if not name.endswith(PICKLED)))
    raise BadCheckpoint(f"{place} has no weights that are known: none of {', '.join(known)}")


# -- out


def require_pushable(place: Repository, public: bool) -> None:
    """Checks, before anything is computed, that a model may be pushed. Raises NotAuthenticated
    without a valid token, BadConfig if the repository exists and is public without `public`, or
    private in spite of it: a push changes nothing about who reads it."""
    if place.revision is not None:
        raise BadConfig(
            f"{place}: what is pushed becomes the newest commit; leave the revision out"
        )
    _require_reachable(place)
    api = HfApi()
    with _telling(place):
        api.whoami()
        if not api.repo_exists(place.name):
            return
        is_private = bool(api.model_info(place.name).private)
    if not public and not is_private:
        raise BadConfig(f"{place} is public; say --public, or name another repository")
    if public and is_private:
        raise BadConfig(
            f"{place} is private, and --public makes only new repositories public; make it public "
            "on the hub, leave --public out, or name another repository"
        )


def pushed(folder: Path, place: Repository, public: bool, message: str) -> str:
    """Pushes the folder's files as one commit, which also deletes older weights that are not among
    them, with their indexes and an adapter's configuration: libraries would prefer these. Returns
    hf:OWNER/NAME@COMMIT. Creates the repository if there is none.

    Raises NotAuthenticated, NotAllowed, StorageUnavailable.
    """
    files = {str(f.relative_to(folder)): f for f in sorted(folder.rglob("*")) if f.is_file()}
    api = HfApi()
    with _telling(place):
        api.create_repo(place.name, private=not public, exist_ok=True)
        before = api.list_repo_files(place.name)
        old = [name for name in before if name.endswith(OF_WEIGHTS) and name not in files]
        operations = [CommitOperationAdd(name, path) for name, path in files.items()]
        gone = [CommitOperationDelete(name) for name in old]
        done = api.create_commit(place.name, [*operations, *gone], commit_message=message)
    return f"{SCHEME}{place.name}@{done.oid}"


# -- errors


def _require_reachable(place: Repository) -> None:
    if not reachable():
        why = f"{constants.ENDPOINT} gave no answer within {SECONDS:g} s"
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else why
        raise StorageUnavailable(f"{place} cannot be asked: {why}")


@contextmanager
def _telling(place: Repository) -> Iterator[None]:
    """Translates errors of the hub's client, and of its HTTP library, into TACL's."""
    try:
        yield
    except TaclError:
        raise
    except Exception as error:
        raise _meant(error, place) from error


def _meant(error: Exception, place: Repository) -> TaclError:
    hub, status = constants.ENDPOINT, getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, hf_errors.RevisionNotFoundError):
        return BadCheckpoint(f"{SCHEME}{place.name} has no revision {place.revision or 'main'}")
    if isinstance(error, hf_errors.RepositoryNotFoundError):
        return BadCheckpoint(f"{hub} has no {place}, or none that you may read. {LOGIN}")
    if isinstance(error, hf_errors.LocalTokenNotFoundError):
        return NotAuthenticated(f"{place} needs a token of {hub}, and there is none. {LOGIN}")
    if status == 401:
        return NotAuthenticated(f"{hub} does not know your token. {LOGIN}")
    if status == 403:
        return NotAllowed(f"your token may not do that with {place}: {first_line(error)}")
    return StorageUnavailable(f"{place}: {type(error).__name__}: {first_line(error)}")
