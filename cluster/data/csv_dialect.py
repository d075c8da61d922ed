"""Finds how a CSV file is written: its encoding, separator and header, and the line of every row.

The submitter is told what was found. If it cannot be known, the file is refused with advice: a file
that is read otherwise than it was written would silently train on something else.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import itertools
import lzma
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cluster.data.columns import INPUT_COLUMN, INPUT_NAMES, LABEL_NAMES
from tacl.errors import BadColumns, BadSample

TABLES = (".csv", ".tsv")
PACKED: dict[str, Callable[..., IO[Any]]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
BYTE_ORDER = {codecs.BOM_UTF8: "utf-8-sig"} | dict.fromkeys(
    (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"
)
LATIN = "cp1252"  # Latin-1 as it is written on most machines
SAMPLE = 1000  # records from which separator and header are found
MOST_ACCENTS = 0.3  # share of the letters; more is no language that is written in Latin-1
NAME = re.compile(r"[^\W\d]\w*([ ./-]\w+){0,3}")  # of a column, as people write them
MOST_LETTERS = 1 << 24  # of a field; else the reader below stops at 131,072
csv.field_size_limit(max(csv.field_size_limit(), MOST_LETTERS))
Record = list[str]


@dataclass(frozen=True)
class CsvDialect:
    """`lines`: where each row begins, from 1."""

    encoding: str
    separator: str
    header: bool
    width: int
    spaced: bool = False  # whether a space follows each separator, as in `text, label`
    lines: tuple[int, ...] = ()

    def options(self) -> dict[str, Any]:
        """For the CSV reader of `datasets`."""
        named = {} if self.header else {"header": None, "names": _numbered(self.width)}
        said = {"sep": self.separator, "encoding": self.encoding}
        return said | named | {"skipinitialspace": self.spaced}

    def notes(self) -> list[str]:
        """What a submitter may not expect."""
        found = [f"fields are separated by {SEPARATORS[self.separator]}"] * (self.separator != ",")
        found += ["read as Latin-1: it is not UTF-8"] * (self.encoding == LATIN)
        names = ", ".join(_numbered(self.width))
        found += [f"no header line was found: the columns are called {names}"] * (not self.header)
        return found


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name, also packed, such as `rows.csv.gz`."""
    packed = path.suffix.lower() in PACKED
    return Path(path.stem if packed else path.name).suffix.lower() in TABLES


def _text(path: Path, encoding: str) -> IO[str]:
    """A stream of the file's text, unpacked."""
    opener = PACKED.get(path.suffix.lower(), open)
    return opener(path, "rt", encoding=encoding, newline="")


def _numbered(width: int) -> list[str]:
    return [f"column_{number}" for number in range(1, width + 1)]


def sniff_dialect(path: Path, named: Collection[str] = ()) -> CsvDialect:
    """The dialect of a file. `named`: columns that the submitter names. Raises BadSample for an
    unknown encoding, BadColumns for an unclear separator or header or lines with more fields than
    the first."""
    encoding = _encoding(path)
    separator = _separator(path, encoding, named)
    sample = _sample(path, encoding, separator)
    if not sample:
        return CsvDialect(encoding, separator, True, 0)  # the reader says that it is empty
    width, lines, long = len(sample[0]), [], []
    spaced = width > 1 and _is_spaced(sample)
    header = _has_header(path, _sample(path, encoding, separator, spaced), named)
    with _text(path, encoding) as text:
        for line, record in _records(text, separator, spaced):
            lines.append(line)
            if len(record) > width:
                long.append(line)
    if long:
        raise BadColumns(
            f"{path.name}: {_numbers(long)} more fields than the {width} of the first line; put a "
            f'text that holds {separator!r} in quotes, "like{separator} this"'
        )
    return CsvDialect(encoding, separator, header, width, spaced, tuple(lines[header:]))


def _numbers(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:10]))
    if len(lines) == 1:
        return f"line {shown} has"
    return f"lines {shown}" + (f" and {len(lines) - 10} more" if len(lines) > 10 else "") + " have"


def _records(text: Any, separator: str, spaced: bool) -> Iterator[tuple[int, Record]]:
    """(line, fields) of each record, without blank lines. Ends at what the `csv` module refuses,
    such as a field that is too long: the reader of `datasets` reports that."""
    reader, line = csv.reader(text, delimiter=separator, skipinitialspace=spaced), 1
    try:
        for record in reader:
            if record:
                yield line, record
            line = reader.line_num + 1
    except csv.Error:
        return


def _sample(path: Path, encoding: str, separator: str, spaced: bool = False) -> list[Record]:
    with _text(path, encoding) as text:
        found = itertools.islice(_records(text, separator, spaced), SAMPLE)
        return [record for _, record in found]


def _encoding(path: Path) -> str:
    with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
        start = file.read(4)
    for mark, name in BYTE_ORDER.items():
        if start.startswith(mark):
            if _decodes(path, name, nothing=True):
                return name
            raise BadSample(f"{path.name} begins as {name} and is not that to its end; convert it")
    if _decodes(path, "utf-8"):
        return "utf-8"
    if _decodes(path, LATIN) and _accents(path) <= MOST_ACCENTS:
        return LATIN
    raise BadSample(
        f"{path.name} is neither UTF-8 nor Latin-1; say what it is and convert it: "
        f"iconv -f ENCODING -t UTF-8 {path.name}"
    )


def _decodes(path: Path, encoding: str, nothing: bool = False) -> bool:
    """Whether all of a file is text of this encoding. `nothing`: whether NUL may occur in it."""
    try:
        with _text(path, encoding) as text:
            while block := text.read(1 << 20):
                if not nothing and "\0" in block:
                    return False
    except UnicodeDecodeError:
        return False
    return True


def _accents(path: Path) -> float:
    """The share of letters that are not those of ASCII."""
    with _text(path, LATIN) as text:
        counted = Counter(letter.isascii() for letter in text.read(1 << 20) if letter.isalpha())
    return counted[False] / max(1, counted.total())


def _separator(path: Path, encoding: str, named: Collection[str]) -> str:
    """The separator with which the most lines have as many fields as the first one."""
    shares: dict[str, float] = {}
    likely: dict[str, int] = {}
    for separator in SEPARATORS:
        records = _sample(path, encoding, separator)
        width = len(records[0]) if records else 0
        if width > 1:
            shares[separator] = sum(len(one) == width for one in records) / len(records)
            likely[separator] = 2 * _usual(records, named) - _is_spaced(records)
    best = [one for one in shares if shares[one] == max(shares.values())]
    best = [one for one in best if likely[one] == max(likely[each] for each in best)]
    if len(best) > 1:
        names = " or ".join(SEPARATORS[one] for one in best)
        raise BadColumns(
            f"{path.name}: are the fields separated by {names}? Write the names of the columns in "
            "the first line, such as text,label"
        )
    return best[0] if best else ","


def _is_spaced(records: Sequence[Record]) -> bool:
    """Whether a space is before every field but the first: it is prose, or written so."""
    return all(cell.startswith(" ") for record in records for cell in record[1:])


def _usual(records: Sequence[Record], named: Collection[str]) -> bool:
    """Whether the first line has a name that is usual or was named. A usual one that comes again
    below is rather a class, unless all of the line is such names."""
    names = [cell.strip().lower() for cell in records[0]]
    found = {i for i, name in enumerate(names) if name in (*LABEL_NAMES, *INPUT_NAMES)}
    if len(found) == len(names) or not {name.lower() for name in named}.isdisjoint(names):
        return True
    return any(not _comes_again(records, i) for i in found)


def _comes_again(records: Sequence[Record], i: int) -> bool:
    """Whether the first line's value of a column occurs again below in that column."""
    name = records[0][i].strip()
    return any(len(row) > i and row[i].strip() == name for row in records[1:])


def _has_header(path: Path, records: Sequence[Record], named: Collection[str]) -> bool:
    """Whether the first line names the columns: it has a usual name, or all of it looks like names,
    none of which occurs again below in its column, as the class of a first row would. Raises
    BadColumns if it may as well be a short text."""
    first = records[0]
    if _usual(records, named) or first == [str(number) for number in range(len(first))]:
        return True  # the latter is how a frame without names is written
    names = [cell.strip() for cell in first]
    if len(set(names)) < len(names) or not all(not name or NAME.fullmatch(name) for name in names):
        return False
    if any(name and _comes_again(records, i) for i, name in enumerate(names)):
        return False
    if len(names) == 1:
        raise BadColumns(
            f"{path.name}: is {names[0]!r:.42} in the first line the name of its only column, or a "
            "row? If a name, write text instead of it, or name it: "
            f"{INPUT_COLUMN}; if a row, write text above it"
        )
    return True
