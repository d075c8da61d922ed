"""Opens whatever Hugging Face `datasets` reads: Parquet, image folder, CSV, JSON lines, and hub
ids, `ID` or `ID:CONFIGURATION`; and rows in a program's memory (`cluster.data.frames`).

A local data set is converted in a temporary folder, which is deleted afterwards, so that an edited
file is never read from a cache. No code that comes with a data set is run.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import datasets
from datasets import (
    Dataset,
    DatasetBuilder,
    DatasetDict,
    config,
    load_dataset,
    load_dataset_builder,
)
from datasets.data_files import url_to_fs
from huggingface_hub import HfApi, constants

from cluster.data.bad_rows import RowNames
from cluster.data.csv_dialect import CsvDialect, is_table, sniff_dialect
from cluster.data.expansion import require_bearable
from cluster.data.frames import Rows, one_split
from cluster.data.leftover import files_of, note_left_out
from cluster.data.readers import OfWholeTables
from cluster.domain.names import did_you_mean
from tacl.errors import (
    BadColumns,
    BadConfig,
    BadSample,
    DataNotFound,
    EmptySplit,
    StorageUnavailable,
    TaclError,
    TooLarge,
)

Data = str | Path | Dataset | DatasetDict | Rows
Splits = dict[str, Dataset]  # by name
T = TypeVar("T")


@dataclass(frozen=True)
class Opened:
    """Splits by name; rows may name pictures in files below `folders`, and nowhere else. `stored`:
    the bytes that the data took as they were given; `notes`: files of no split, and how a CSV file
    was read, where that is not as usual."""

    splits: Splits
    stored: int
    folders: tuple[Path, ...] = ()
    places: RowNames = field(default_factory=RowNames)
    notes: tuple[str, ...] = ()


BESIDE = 1000  # files in whose names a misspelt one is looked for
HUB_SECONDS = 10.0  # how long a hub may take to say that it knows a data set
HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?::([^:/\\]+))?")
# What datasets says where several configurations are known and none of them was named.
CONFIGURATIONS = re.compile(
    r"[Aa]vailable(?: configs(?: in the cache)?)?: \[([^]]*)\]|configurations in the cache: (.*) Pl"
)
NO_ROWS = re.compile(  # what the readers say where there are none
    "corresponds to no data|BatchSize must be greater|No columns to parse|at least one example"
    "|Empty JSON file"
)
FORMATS = "Parquet, an image folder (one sub-folder per class), CSV, JSON lines"


@contextmanager
def opened(data: Data, named: Collection[str | None] = ()) -> Iterator[Opened]:
    """The splits of `data`, readable inside the block; `named` are columns that it should have.

    Raises DataNotFound, EmptySplit, BadSample when a file of it cannot be read, BadColumns when it
    cannot be known how a CSV file is written.
    """
    with TemporaryDirectory(prefix="tacl-data-") as cache, _quiet():
        if isinstance(data, str | Path):
            name = str(data)
            with _listed_once():
                found = _read(name, Path(cache), [one for one in named if one])
        else:
            name, found = "the data set", _held(data)
        empty = [split for split, rows in found.splits.items() if not rows.num_rows]
        if empty or not found.splits:
            raise EmptySplit(
                f"{name}: split {', '.join(empty) or 'train'} has no rows; each needs some"
            )
        yield found


def _held(data: Dataset | DatasetDict | Rows) -> Opened:
    """Rows of a program, which may name any file."""
    found = _splits(data) if isinstance(data, DatasetDict) else {"train": one_split(data)}
    return Opened(found, _in_memory(found), (Path("/"),))


def _read(data: str, cache: Path, named: Collection[str]) -> Opened:
    """Read a path or hub id. Rows of a folder may name pictures as files in it or in what was
    unpacked of it; rows of a single file may name none."""
    path = located(data)
    if path is None:
        found = _hub(data)
        return Opened(found, _in_memory(found), (cache, Path(config.HF_CACHE_HOME)))
    if not path.is_dir():
        how = _written(data, path, [path], named)
        found, notes = _file(data, path, cache, how), list[str]()
        files, folders = [path], tuple[Path, ...]()
    else:
        builder = _builder(data, path, cache)
        notes = note_left_out(data, path, builder)
        how = _written(data, path, _tables(builder), named)
        found = _folder(data, path, cache, builder, how)
        files, folders = path.rglob("*"), (path, cache)
    stored = sum(file.stat().st_size for file in files if file.is_file())
    notes += how.notes() if how else []
    return Opened(found, stored, folders, _places(path, how, found), tuple(notes))


def _in_memory(found: Splits) -> int:
    return sum(split.data.nbytes for split in found.values())


def _written(
    data: str, path: Path, files: Sequence[Path], named: Collection[str]
) -> CsvDialect | None:
    """The dialect of a CSV file, or of all `files` of a folder if they are read as CSV; else None.
    Raises BadColumns if their dialects differ."""
    if not files or not all(map(is_table, files)):
        return None
    for file in files:
        _with_plain_errors(data, partial(require_bearable, file))
    found = {
        str(file.relative_to(path)): _with_plain_errors(data, partial(sniff_dialect, file, named))
        for file in files
    }
    first, *others = (replace(one, lines=()) for one in found.values())
    if any(other != first for other in others):
        raise BadColumns(
            f"{data}: {', '.join(found)} are written in different ways (separator, encoding, "
            "header, number of columns); write all of them in the same"
        )
    return first if others else next(iter(found.values()))


def _builder(data: str, folder: Path, cache: Path) -> DatasetBuilder:
    """What `datasets` takes a folder for. Nothing is read yet."""
    if glob.has_magic(str(folder)):
        raise BadConfig(f"{data}: a folder whose path has *, ? or [ cannot be read; rename it")
    return _with_plain_errors(data, lambda: load_dataset_builder(str(folder), cache_dir=str(cache)))


def _tables(builder: DatasetBuilder) -> list[Path]:
    """The files of a folder that `datasets` reads, if it reads them as CSV; it ignores others, such
    as a licence."""
    if not isinstance(builder.config, OfWholeTables):
        return []
    return sorted(Path(file) for files in files_of(builder).values() for file in files)


def _places(path: Path, how: CsvDialect | None, found: Splits) -> RowNames:
    """The lines of rows, known for a single split with as many lines as the reader found rows."""
    if len(found) != 1:
        return RowNames()
    lines: Sequence[int] = how.lines if how else ()
    if path.is_file() and path.suffix.lower() == ".jsonl":
        with path.open("rb") as rows:
            lines = [number for number, row in enumerate(rows, 1) if row.strip()]
    (name,) = found
    return RowNames({name: lines} if len(lines) == found[name].num_rows else {})


def _splits(found: DatasetDict) -> Splits:
    return {str(name): split for name, split in found.items()}


def located(data: str) -> Path | None:
    """The path of the data; None if their name is one of a hub. Raises DataNotFound."""
    if not data:  # such as from a variable that is not set; it does not mean the current folder
        raise DataNotFound("no data are named: '' was given; give a file, a folder or a hub id")
    path = Path(os.path.expanduser(data))
    if os.path.exists(path):  # `Path.exists` raises for a text that is too long for a name
        return path.resolve()
    found = HUB_ID.fullmatch(data)
    if found is None or Path(found[1]).suffix:
        raise DataNotFound(
            f"no data at {data}: there is no file or folder {path.absolute()}{_likely(data)}"
        )
    return None


def _hub(data: str) -> Splits:
    name, _, configuration = data.partition(":")
    _ask_hub(name)
    return _converted(data, lambda: load_dataset(name, configuration or None))


def _folder(
    data: str, path: Path, cache: Path, builder: DatasetBuilder, how: CsvDialect | None
) -> Splits:
    if how is not None:
        given: dict[str, Any] = {"cache_dir": str(cache)} | how.options()
        return _converted(data, lambda: load_dataset(str(path), **given))
    for file in path.rglob("*.parquet"):
        _with_plain_errors(data, partial(require_bearable, file))

    def load() -> object:
        builder.download_and_prepare()
        return builder.as_dataset()

    return _converted(data, load)


def _file(data: str, path: Path, cache: Path, how: CsvDialect | None) -> Splits:
    given: dict[str, Any] = {"cache_dir": str(cache)} | (how.options() if how else {})
    if how is None:  # else `_written` has checked all of it
        _with_plain_errors(data, partial(require_bearable, path))
    # datasets knows formats by lower-case suffixes, and would search all folders above a pattern
    kinds = "".join(path.suffixes[-2:])  # as .csv.gz
    if kinds != kinds.lower() or glob.has_magic(str(path.parent)):
        link = cache / "given" / path.name.lower()
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
        path = link
    folder, file = str(path.parent), glob.escape(str(path))  # it takes a name for a pattern
    return _converted(data, lambda: load_dataset(folder, data_files=file, **given))


def _converted(data: str, load: Callable[[], object]) -> Splits:
    found = _with_plain_errors(data, load)
    if not isinstance(found, DatasetDict):
        raise DataNotFound(f"{data} is no data set of splits: found {type(found).__name__}")
    return _splits(found)


def finds_no_format(error: BaseException) -> bool:
    """Whether an error of `datasets` means that it can read no file of a folder: the class,
    FileNotFoundError, is that of other errors too."""
    return "supported extension" in str(error)


def asked_a_hub(error: BaseException) -> bool:
    """Whether an error of `datasets` means that no local data have this name: its classes are those
    of other errors too."""
    return "on the Hub" in str(error)


def _with_plain_errors(data: str, load: Callable[[], T]) -> T:
    """Run `load`; whatever it raises becomes one message that names the data and the cause."""
    try:
        return load()
    except TaclError:
        raise
    except (FileNotFoundError, ConnectionError) as error:
        if finds_no_format(error):  # it names a hundred
            raise _foreign(data) from error
        if asked_a_hub(error):
            raise DataNotFound(
                f"no data at {data}: no such file or folder here{_likely(data)}, and the hub was "
                f"not reached ({error})"
            ) from error
        raise DataNotFound(
            f"no data that can be read at {data}{_likely(data)}: {error}. Give {FORMATS}."
        ) from error
    except Exception as error:  # every reader of datasets has exceptions of its own
        raise _unreadable(data, error) from error


def _unreadable(data: str, error: Exception) -> TaclError:
    cause = error.__cause__ or error
    text = " ".join(str(cause).split())
    if isinstance(cause, MemoryError):
        return TooLarge(f"{data} becomes more than there is memory for ({text}); give less at once")
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageUnavailable(
            f"there is no room to read {data} ({text}); free some, then repeat what you asked"
        )
    if isinstance(cause, StopIteration) or NO_ROWS.search(text):
        return EmptySplit(f"{data} has no rows, or one of its splits has none; each needs some")
    if found := CONFIGURATIONS.search(text):
        return DataNotFound(
            f"{data} names none of its configurations: {found[1] or found[2]}. Give one, as "
            "ID:CONFIGURATION of a data set on a hub, or as the folder of its files."
        )
    if "infer" in text:
        return _foreign(data)
    return BadSample(f"{data} cannot be read: {text}")


def _foreign(data: str) -> DataNotFound:
    return DataNotFound(
        f"{data} is of no format that can be read. Give {FORMATS}; or, in Python, a frame or list. "
        "A spreadsheet is saved as CSV first."
    )


def _likely(data: str) -> str:
    """If a path does not exist, a question whether one beside it with a close name is meant."""
    path = Path(os.path.expanduser(data))
    if os.path.exists(path) or not os.path.isdir(path.parent):
        return ""
    return did_you_mean(path.name, [one.name for one in islice(path.parent.iterdir(), BESIDE)])


def _ask_hub(name: str) -> None:
    """DataNotFound when the hub does not know `name`, or does not answer in time."""
    if constants.HF_HUB_OFFLINE:
        return  # load_dataset answers from its cache, or fails at once
    failure: list[BaseException] = [TimeoutError(f"no answer within {HUB_SECONDS:.0f} s")]

    def ask() -> None:
        try:
            HfApi().dataset_info(name, timeout=HUB_SECONDS)
            failure.clear()
        except Exception as error:  # reported below, in the thread that asked
            failure[:] = [error]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    if failure:
        reason = " ".join(str(failure[0]).split())[:200]
        raise DataNotFound(
            f"no data at {name}: no such file or folder here{_likely(name)}, and the hub "
            f"{constants.ENDPOINT} "
            f"does not give it ({reason}). Give a path, or HF_HUB_OFFLINE=1 to use what was "
            "downloaded before."
        ) from failure[0]


@contextmanager
def _listed_once() -> Iterator[None]:
    """`datasets` lists a folder anew for each of its 66 patterns; here once, by this thread."""
    files: Any = url_to_fs(os.sep)[0]  # of this thread alone
    files.find = lru_cache(None)(files.find)
    try:
        yield
    finally:
        del files.find


@contextmanager
def _quiet() -> Iterator[None]:
    """Run without progress bars and log lines of `datasets`: errors are reported once, by TACL."""
    bars, level = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if not bars:
            datasets.enable_progress_bars()
