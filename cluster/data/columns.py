"""Finds the columns of inputs and of classes, by type or as named by the submitter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, Image, Json, LargeList, List, Value
from numpy.typing import NDArray

from cluster.data.bad_rows import Bad, RowNames
from cluster.domain.base import Modality
from cluster.domain.names import did_you_mean, listed
from cluster.domain.tasks import CLASSES, NAME_CHARACTERS
from tacl import errors
from tacl.errors import BadColumns, BadSample, ModalityMismatch

if TYPE_CHECKING:
    from cluster.data.sources import Splits

# Names decide only if types leave a choice.
LABEL_NAMES = ("label", "labels", "class", "category", "target", "intent")
INPUT_NAMES = ("text", "sentence", "content", "image", "img", "input")
# How to name the column: on the command line; in Python, over HTTP and in the form of the page.
LABEL_COLUMN = "--label-column NAME (Python and HTTP: label_column; page: Column of classes)"
INPUT_COLUMN = "--input-column NAME (Python and HTTP: input_column; page: Column of inputs)"

FEWEST = 8  # rows of a task, some of which are held out

EXACT = 2**53  # a larger float may be another whole number than was written

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Classes:
    """Names of the classes by number, and the class number of every row of every split."""

    names: tuple[str, ...]
    labels: dict[str, Labels]


def kind(feature: object) -> str:
    """The kind of a feature: image | text | class | number | float | list | other."""
    if isinstance(feature, Image):
        return "image"
    if isinstance(feature, ClassLabel):
        return "class"
    if isinstance(feature, dict):  # a Parquet struct of bytes and path, not described as an image
        return "image" if "bytes" in feature else "other"
    if isinstance(feature, Json):  # a JSON column whose rows are of different types
        return "text"
    if isinstance(feature, Value):
        marks = {"binary": "image", "string": "text", "int": "number", "bool": "number"}
        marks |= {"float": "float", "decimal": "float"}
        return next((kind for mark, kind in marks.items() if mark in feature.dtype), "other")
    return "list" if isinstance(feature, List | LargeList) else "other"


def described(dataset: Dataset) -> str:
    """The columns for a message, such as `text (string), label (int64)`."""
    types = {n: getattr(f, "dtype", type(f).__name__) for n, f in dataset.features.items()}
    kinds = {n: kind(f) for n, f in dataset.features.items()}
    shown = {"image": "image", "class": "class label"}
    return listed([f"{n} ({shown.get(kinds[n], types[n])})" for n in types])


def find_label(dataset: Dataset, named: str | None, taken: str | None) -> str:
    """The label column; `taken`: the input column, if named. Raises BadColumns if it is unclear."""
    if named is not None:
        _require(dataset, named, "--label-column")
        _require_classes(dataset, named)
        return named
    columns = {n: kind(f) for n, f in dataset.features.items() if n != taken}
    marked = [n for n, k in columns.items() if k == "class"]
    usual = [n for n in LABEL_NAMES if columns.get(n) in ("class", "number", "text")]
    for found in (marked, usual[:1]):
        if len(found) == 1:
            return found[0]
    for name in [n for n in LABEL_NAMES if n in columns]:
        _require_classes(dataset, name)
    plain = [n for n, k in columns.items() if k in ("number", "text") and _repeats(dataset, n)]
    if len(plain) == 1:
        return plain[0]
    odd = [n for n, k in columns.items() if k in ("float", "list")]
    if len(odd) == 1 and not plain:
        _require_classes(dataset, odd[0])
    if set(columns.values()) == {"image"}:
        raise errors.TooFewClasses(
            "found pictures and no classes; give every class a sub-folder of its own, two at least"
        )
    raise BadColumns(
        f"which column is the class? Found {described(dataset)}. Name it: {LABEL_COLUMN}"
    )


def _require_classes(dataset: Dataset, column: str) -> None:
    """Raises BadColumns for a column that cannot be the class."""
    found = kind(dataset.features[column])
    why = {
        "list": "holds lists; several classes of a row (multi-label) are not supported: give one",
        "float": "holds numbers with fractions, or too large to be exact; regression is not "
        "supported: give classes, long numbers as texts",
    }.get(found, "holds no classes")
    if found not in ("class", "number", "text"):
        raise BadColumns(f"label column {column!r} {why}. Found {described(dataset)}")


def with_whole_numbers(dataset: Dataset, named: str | None) -> Dataset:
    """The data set with class numbers as whole numbers, if a missing one made them floats."""
    for column in {named, *LABEL_NAMES} & set(dataset.column_names):
        if kind(dataset.features[column]) == "float":
            values = [
                None if one is None or one != one else one for one in _values(dataset, column)
            ]
            if all(one is None or (abs(one) <= EXACT and one == int(one)) for one in values):
                whole = [None if one is None else int(one) for one in values]
                dataset = dataset.remove_columns([column]).add_column(column, whole)
    return dataset


def marked_label(dataset: Dataset, named: str | None) -> str | None:
    """The label column, to be ignored: the named one, or one marked as such or with a usual name,
    or None. Raises BadColumns if the named one does not exist."""
    if named is not None:
        _require(dataset, named, "--label-column")
        return named
    kinds = {n: kind(f) for n, f in dataset.features.items()}
    marked = [n for n, k in kinds.items() if k == "class"]
    return next(iter(marked + [n for n in LABEL_NAMES if n in kinds]), None)


def find_input(dataset: Dataset, modality: Modality, named: str | None, label: str | None) -> str:
    """The column of pictures or texts. Raises ModalityMismatch, BadSample or BadColumns if there is
    none, or it is unclear which one it is."""
    if named is not None:
        return _named_input(dataset, modality, named)
    kinds = {n: kind(f) for n, f in dataset.features.items() if n != label}
    found = [n for n, k in kinds.items() if k == modality]
    usual = [n for n in INPUT_NAMES if n in found]
    if len(found) == 1 or usual:
        return (usual or found)[0]
    wanted = "pictures" if modality == "image" else "texts"
    if found:
        raise BadColumns(
            f"which column holds the {wanted}? Found {described(dataset)}. Name it: {INPUT_COLUMN}"
        )
    if set(kinds.values()) & {"image", "text"}:
        raise ModalityMismatch(f"the base reads {wanted}; the data hold {described(dataset)}")
    raise BadColumns(f"no column of {wanted}: found {described(dataset)}")


def _named_input(dataset: Dataset, modality: Modality, named: str) -> str:
    _require(dataset, named, "--input-column")
    found = kind(dataset.features[named])
    if found == modality:
        return named
    wanted = "pictures" if modality == "image" else "texts"
    if found in ("image", "text"):
        raise ModalityMismatch(f"the base reads {wanted}; column {named!r} holds {found}s")
    raise BadSample(f"column {named!r} holds no {wanted}: {described(dataset)}")


def _require(dataset: Dataset, column: str, option: str) -> None:
    if column not in dataset.column_names:
        near = did_you_mean(column, dataset.column_names)
        raise BadColumns(f"no column {column!r} ({option}){near}: found {described(dataset)}")


def as_stored(dataset: Dataset, name: str) -> Dataset:
    """One column, undecoded: `datasets` would decode pictures wherever they are nested, and open
    the files and addresses that they name. Call it once for many rows: it takes as long as reading
    hundreds."""
    return dataset.select_columns([name]).with_format("arrow")


def _stored(dataset: Dataset, name: str) -> pa.ChunkedArray:
    table: pa.Table = as_stored(dataset, name)[:]  # type: ignore
    return table.column(name)


def _values(dataset: Dataset, column: str) -> list[Any]:
    try:
        values = _stored(dataset, column).to_pylist()
    except UnicodeDecodeError as error:
        raise BadSample(f"column {column!r} holds bytes that are not text: {error}") from error
    if isinstance(feature := dataset.features[column], Json):  # its texts are stored in quotes
        decoded = map(feature.decode_example, values)
        return [d if isinstance(d, str) else v for d, v in zip(decoded, values, strict=True)]
    return values


def _repeats(dataset: Dataset, column: str) -> bool:
    """Whether values repeat, as classes do and sentences do not."""
    return len(_stored(dataset, column).unique()) <= dataset.num_rows / 2


def is_unlabelled(dataset: Dataset, train: Dataset, column: str) -> bool:
    """Whether the labels are withheld: by convention all are -1, and the training rows have no
    class -1."""
    given = [_distinct(data, column) for data in (dataset, train)]
    return given[0] == [-1] and -1 not in given[1]


def _distinct(dataset: Dataset, column: str) -> list[Any]:
    """The different numbers of a column; empty if it holds something else."""
    if kind(dataset.features.get(column)) not in ("class", "number"):
        return []
    return _stored(dataset, column).unique().to_pylist()


def require_in_all(splits: Splits, columns: Sequence[str]) -> None:
    """Raises BadColumns if a split lacks one of the columns."""
    for column in columns:
        for name, split in splits.items():
            if column not in split.column_names:
                raise BadColumns(f"split {name} has no column {column!r}: found {described(split)}")


def class_names(
    splits: Splits, column: str, named: Sequence[str] | None, places: RowNames
) -> dict[str, list[str | Bad]]:
    """The class of every row of every split, or why it has none.

    A number without a name is its own name. `named` lists the names of numbers 0, 1, ..., or the
    strings that may occur. Raises BadColumns.
    """
    if named is not None and (len(set(named)) < len(named) or "" in named):
        raise BadColumns(
            f"classes {','.join(named)!r}: write each name once and none empty, such as "
            "--classes ham,spam"
        )
    return {split: _names(data, column, split, named, places) for split, data in splits.items()}


def known_classes(splits: Splits, column: str, named: Sequence[str] | None) -> str:
    """The classes that the data or the submitter declare, for a message; empty if neither does."""
    feature = next(iter(splits.values())).features[column]
    known = feature.names if isinstance(feature, ClassLabel) else named
    return f"; the {len(known)} classes are {listed(known)}" if known else ""


def numbered(
    splits: Splits,
    column: str,
    names: dict[str, list[str]],
    named: Sequence[str] | None,
    fewest: int,
) -> Classes:
    """Number the classes of rows that all have one. `fewest`: rows that a task needs.

    Strings are sorted. A class without a row is left out. Raises TooFewClasses, BadColumns,
    EmptySplit.
    """
    present = {name for values in names.values() for name in values}
    classes = _ordered(splits, column, present, named)
    _check_classes(classes, names, column, fewest)
    number = {name: i for i, name in enumerate(classes)}
    labels = {
        split: np.array([number[name] for name in values], dtype=np.int64)
        for split, values in names.items()
    }
    return Classes(classes, labels)


def _names(
    dataset: Dataset, column: str, split: str, named: Sequence[str] | None, places: RowNames
) -> list[str | Bad]:
    feature = dataset.features[column]
    known = feature.names if isinstance(feature, ClassLabel) else named
    is_number = kind(feature) == "class" or (known is not None and kind(feature) == "number")
    spelt = _truths(feature, named)
    allowed = None if named is None else set(named)
    names: list[str | Bad] = []
    for row, value in enumerate(_values(dataset, column)):
        if spelt:
            name = spelt.get(value)
        elif is_number and known is not None:
            inside = isinstance(value, int) and 0 <= value < len(known)
            name = known[int(value)] if inside else None
        else:
            name = None if value is None or not str(value).strip() else str(value)
        if name is None or (allowed is not None and name not in allowed):
            found = "nothing" if value is None else f"{value!r:.100}"
            names.append(Bad(f"{places.of(split, row)}: {found} in column {column!r} is no class"))
        else:
            names.append(name)
    return names


def _truths(feature: object, named: Sequence[str] | None) -> dict[Any, str]:
    """Names of True and False in a column of truths, if the classes that were named are these words
    in any order and not names of 0 and 1; otherwise empty."""
    said = {name.casefold(): name for name in named or ()}
    is_bool = isinstance(feature, Value) and feature.dtype == "bool"
    if not is_bool or not said or not said.keys() <= {"true", "false"}:
        return {}
    return {truth: said[word] for truth, word in ((True, "true"), (False, "false")) if word in said}


def _ordered(
    splits: Splits, column: str, present: set[str], named: Sequence[str] | None
) -> tuple[str, ...]:
    feature = next(iter(splits.values())).features[column]
    if named is not None:
        order = named
    elif isinstance(feature, ClassLabel):
        order = feature.names
    elif all(re.fullmatch(r"-?\d+", name) for name in present) and kind(feature) == "number":
        order = sorted(present, key=int)
    else:
        order = sorted(present)
    # Then names that only another split has, whose column has another type, or more names.
    return tuple(name for name in (*order, *sorted(present - {*order})) if name in present)


def _check_classes(
    classes: tuple[str, ...], names: dict[str, list[str]], column: str, fewest: int
) -> None:
    train = next(iter(names))
    if len(classes) < 2:
        raise errors.TooFewClasses(
            f"column {column!r} has one class only: {listed(classes)}; a task needs two"
        )
    rows = sum(len(values) for values in names.values())
    if len(classes) > rows / 2 and rows >= fewest > 1:  # shots may be one row of each class
        raise BadColumns(
            f"column {column!r} has {len(classes)} different values in {rows} rows: these are no "
            f"classes. Name another: {LABEL_COLUMN}"
        )
    if len(classes) > CLASSES:
        raise BadColumns(f"column {column!r} has {len(classes):,} classes; at most {CLASSES:,}")
    for name in classes:
        _require_name(name, column)
    trained = set(names[train])
    if untrained := [name for name in classes if name not in trained]:
        raise errors.EmptySplit(f"split {train} has no row of class {listed(untrained)}")


def _require_name(name: str, column: str) -> None:
    """Raises BadColumns for a class name that is not fit for the terminals and pages of others."""
    if len(name) > NAME_CHARACTERS:
        raise BadColumns(
            f"column {column!r} has a class of {len(name):,} characters, which begins "
            f"{name[:40]!r}; at most {NAME_CHARACTERS}"
        )
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        raise BadColumns(
            f"column {column!r}: class {name!r} holds control characters; leave them out"
        )
