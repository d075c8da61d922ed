"""Storage that outlives a process: a directory, or an S3 bucket through pyarrow.fs.

A URI never contains credentials: S3 takes them from the environment of each process, from `~/.aws`,
or from the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pyarrow.fs

from cluster.storage.drafts import atomic_write
from tacl.errors import BadConfig, StorageUnavailable

CONNECT_SECONDS = 5.0
ATTEMPTS = 3  # of one request
OPTIONS = {"region", "scheme", "endpoint_override"}  # options of an S3 URI after `?`
FORMS = "a directory, file:///PATH or s3://BUCKET/PREFIX"


class Storage:
    """One storage; `root` is its path within `filesystem`. BadConfig for an unknown kind of URI."""

    def __init__(self, uri: str | Path) -> None:
        self.uri = absolute_uri(str(uri))
        self.is_local = self.uri.startswith("file://")
        try:
            self.filesystem, self.root = _local(self.uri) if self.is_local else _s3(self.uri)
        except ValueError as error:  # raised by Arrow, or for a path that is no text
            raise BadConfig(f"{self.uri} is no storage: {error}; use {FORMS}") from error

    def below(self, name: str) -> Storage:
        """A place inside this one."""
        place, mark, options = self.uri.partition("?")
        return Storage(f"{place.rstrip('/')}/{name}{mark}{options}")

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None if it does not exist."""
        with self.reaching():
            try:
                with self.filesystem.open_input_file(f"{self.root}/{name}") as stream:
                    return stream.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Write a small file: it has the old content or the new, whenever a process dies."""
        place = f"{self.root}/{name}"
        with self.reaching():
            file = Path(place)
            if self.is_local:
                file.parent.mkdir(parents=True, exist_ok=True)
            to = atomic_write(file) if self.is_local else self.filesystem.open_output_stream(place)
            with to as stream:
                if self.is_local:
                    os.fchmod(stream.fileno(), 0o600)  # as files of a home, wherever it lies
                stream.write(data)

    def remove(self, name: str) -> None:
        """Delete a file; harmless if it does not exist."""
        with self.reaching(), suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{self.root}/{name}")

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """StorageUnavailable in place of errors of a remote store. Those of a disk are kept."""
        try:
            yield
        except OSError as error:
            if self.is_local or isinstance(error, FileNotFoundError):
                raise
            raise StorageUnavailable(
                f"{self.uri} does not do what was asked: {' '.join(str(error).split())[:300]}. "
                "Look whether the bucket exists, in which region (AWS_REGION, ~/.aws or ?region=; "
                "else us-east-1), whether the credentials of this machine (AWS_ACCESS_KEY_ID ..., "
                "~/.aws) may use it, and whether it can be reached."
            ) from error


def absolute_uri(text: str) -> str:
    """A directory as a URI; a URI unchanged. BadConfig for empty text, which would be the current
    directory."""
    if not text:  # for example an unset variable
        raise BadConfig("no place is named: '' was given; name a directory or s3://BUCKET/PREFIX")
    return text if "://" in text else Path(os.path.expanduser(text)).resolve().as_uri()


def _local(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
    filesystem, root = pyarrow.fs.FileSystem.from_uri(uri)
    try:
        Path(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailable(
            f"the directory {root} cannot be made: {error.strerror}. Let this process write there, "
            "or name another one; then repeat what you asked."
        ) from error
    return filesystem, root


def _s3(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or not parts.netloc:
        raise BadConfig(f"{uri} is no storage; use {FORMS}")
    if "@" in parts.netloc:
        raise BadConfig(
            f"s3://{parts.netloc.rpartition('@')[2]}{parts.path} was given with credentials, which "
            "would be stored; leave them out, and give them in the environment or in ~/.aws"
        )
    if unknown := options.keys() - OPTIONS:
        raise BadConfig(
            f"a URI of S3 may name {', '.join(sorted(OPTIONS))} after `?`, not "
            f"{', '.join(sorted(unknown))}"
        )
    filesystem = pyarrow.fs.S3FileSystem(
        **options,
        connect_timeout=CONNECT_SECONDS,
        retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,  # a small file is one request
    )
    return filesystem, f"{parts.netloc}{parts.path}".rstrip("/")
