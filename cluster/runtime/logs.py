"""The logs of a home's processes, for its operators: HOME/logs/NAME.log, one JSON object a line.

| file | of |
|---|---|
| cluster.log | the head: what it starts and stops |
| coordinator.log | what was accepted or refused; which runs were placed, and what became of them |
| learners.log | every process of a run, also those of groups: started, ended, raised |
| serving.log | every request over HTTP, and what predictors could not do |

A line has `at`, `level`, `logger`, `pid` and `message`; the FACTS that the code gives as `extra`;
and `trace` after an exception. Beside them, head.log is what the head prints while it starts.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

BYTES = 10 << 20  # of a file, which is then renamed NAME.log.1
KEPT = 5  # older ones
OURS = ("cluster", "tacl")  # logged from INFO on; libraries from WARNING on
FACTS = (
    *("request_id", "run_id", "task", "user", "kind", "attempt"),
    *("method", "route", "status", "seconds", "error", "cause", "trace"),
)


def log_to(folder: Path, name: Literal["cluster", "coordinator", "learners", "serving"]) -> None:
    """Log to this file from now on, and keep other users from files that this process makes in the
    home; harmless if repeated."""
    os.umask(0o077)  # on a node of a joined cluster nothing else has set it
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = folder / f"{name}.log"
    root = logging.getLogger()
    if any(isinstance(one, _Lines) and one.baseFilename == str(place) for one in root.handlers):
        return
    handler = _Lines(place, maxBytes=BYTES, backupCount=KEPT, encoding="utf-8")
    handler.setFormatter(_Json())
    root.addHandler(handler)
    for logger in OURS:
        logging.getLogger(logger).setLevel(logging.INFO)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"at": at, "level": record.levelname, "logger": record.name}
        line |= {"pid": record.process, "message": record.getMessage()}
        facts = {name: getattr(record, name, None) for name in FACTS}
        line |= {name: value for name, value in facts.items() if value is not None}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Lines(RotatingFileHandler):
    """A file that several processes write, by lines under a lock; reopened once it was rotated."""

    def _open(self) -> TextIOWrapper:
        def closed_to_others(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding="utf-8", opener=closed_to_others)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line. An error, as of a folder that was deleted, does not stop the caller."""
        folder = None
        try:
            where = os.path.dirname(self.baseFilename)
            os.makedirs(where, mode=0o700, exist_ok=True)
            folder = os.open(where, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            stream = self.stream  # a failed close, for example on a full disk, leaves it closed
            if stream is None or stream.closed or not _is_at(self.baseFilename, stream.fileno()):
                if stream is not None:
                    stream.close()
                self.stream = self._open()  # another process has rotated it
            super().emit(record)
        except OSError:
            self.handleError(record)
        finally:
            if folder is not None:
                os.close(folder)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
