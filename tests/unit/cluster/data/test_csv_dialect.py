"""CSV files are read as they were written, or refused."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict

from cluster.data.csv_dialect import sniff_dialect
from cluster.data.ingest import ingest, ingest_samples, inputs_of
from cluster.domain.tasks import Reading
from cluster.storage.blobs import Blobs
from cluster.storage.samples import labelled_rows
from tacl.errors import BadColumns, BadConfig, BadSample, DataNotFound, EmptySplit

ROWS = [(f"Sätze, die Nummer {i} haben", "ab"[i % 2]) for i in range(40)]
HEADER = [("text", "label")]


def text(separator: str, rows: list[tuple[str, str]]) -> str:
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    return "\n".join(separator.join(row) for row in quoted)


def rows_of(data: Path, blobs: Blobs) -> tuple[set[tuple[str, str]], tuple[str, ...]]:
    found = ingest(data, blobs, "text")
    kept = [labelled_rows(blobs, part) for part in (found.train, found.validation, found.test)]
    rows = {(str(t), found.classes[n]) for ts, ns in kept for t, n in zip(ts, ns, strict=True)}
    assert len(rows) + found.probe == found.train.rows + found.probe + found.validation.rows + (
        found.test.rows
    )
    return rows, found.notes


@pytest.mark.parametrize("header", [True, False], ids=["header", "no header"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_it_is_read_as_written(tmp_path: Path, separator: str, encoding: str, header: bool) -> None:
    path = tmp_path / "d.csv"
    path.write_text(text(separator, HEADER * header + ROWS), encoding=encoding)
    found = sniff_dialect(path)
    assert (found.separator, found.header, found.width) == (separator, header, 2)
    assert len(found.lines) == len(ROWS)
    rows, notes = rows_of(path, Blobs(tmp_path / "blobs"))
    assert rows < set(ROWS)
    told = " ".join(notes)
    assert ("separated by" in told) == (separator != ",")
    assert ("Latin-1" in told) == (encoding == "cp1252")
    assert ("column_1, column_2" in told) == (not header)


def test_no_row_is_lost_where_there_is_no_header(tmp_path: Path) -> None:
    """Also where the first texts are as short as names."""
    path = tmp_path / "d.csv"
    path.write_text("\n".join(f"good{i},{'yes' if i % 2 else 'no'}" for i in range(40)))
    found = ingest(path, Blobs(tmp_path / "blobs"), "text")
    counted = (found.train, found.validation, found.test)
    assert sum(part.rows for part in counted) + found.probe == 40
    assert (found.input_column, found.label_column) == ("column_1", "column_2")


@pytest.mark.parametrize("first", ["image", "target", "Text"])
def test_a_class_with_a_usual_name_of_a_column_makes_no_header(tmp_path: Path, first: str) -> None:
    rows = [f"turn left, at number {i};{(first, 'audio')[i % 2]}" for i in range(20)]
    path = lines_in(tmp_path / "d.csv", rows)
    assert (sniff_dialect(path).header, len(sniff_dialect(path).lines)) == (False, 20)
    assert sniff_dialect(path, ["image", "target", "text"]).header  # who names it knows
    for header in ("text;label", "text;kind", f"utterance;{first}s"):
        assert sniff_dialect(lines_in(path, [header, *rows])).header
    assert sniff_dialect(lines_in(path, ["text;label", *rows, "text;label", *rows])).header


def test_no_first_line_of_one_column_is_lost(tmp_path: Path) -> None:
    """Nor asked about, where it is the name of the column."""
    rows = ["hello there", "good morning", "and good night"]
    path = lines_in(tmp_path / "d.csv", rows)
    with pytest.raises(BadColumns, match=r"d\.csv: is 'hello there' .*if a row, write text above"):
        inputs_of(path, "text")
    with pytest.raises(
        BadColumns, match="is 'question' .*write text instead of it, or name it: --"
    ):
        inputs_of(lines_in(path, ["question", *rows]), "text")
    assert inputs_of(path, "text", "question") == rows
    assert inputs_of(lines_in(path, ["text", *rows]), "text") == rows
    for first in ("What is this?", "this is no name of a column", "good morning"):
        assert inputs_of(lines_in(path, [first, *rows]), "text") == [first, *rows]


@pytest.mark.parametrize("header", ["review,sentiment", "id number,kind", "0,1", "Text;Class"])
def test_a_header_is_no_row(tmp_path: Path, header: str) -> None:
    path = tmp_path / "d.csv"
    separator = ";" if ";" in header else ","
    path.write_text("\n".join([header, *(f"t{i}{separator}{'ab'[i % 2]}" for i in range(40))]))
    assert sniff_dialect(path).header
    assert sniff_dialect(path).notes() == (
        ["fields are separated by semicolons"] * (separator == ";")
    )


def test_spaces_after_separators_are_no_part_of_names(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("\n".join(["text, label", *(f'"a, b {i}", {"ab"[i % 2]}' for i in range(40))]))
    found = ingest(path, Blobs(tmp_path / "blobs"), "text", Reading(label_column="label"))
    assert found.classes == ("a", "b")


def test_words_that_stand_for_nothing_elsewhere_are_classes(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(text(",", HEADER + [(f"t {i}", ("NA", "None")[i % 2]) for i in range(40)]))
    assert ingest(path, Blobs(tmp_path / "blobs"), "text").classes == ("NA", "None")


def test_what_cannot_be_known_is_refused(tmp_path: Path) -> None:
    path, blobs = tmp_path / "d.csv", Blobs(tmp_path / "blobs")
    path.write_text("\n".join(f"one,two {i};a" for i in range(40)))
    with pytest.raises(BadColumns, match="commas or semicolons.*first line"):
        ingest(path, blobs, "text")
    path.write_text("\n".join(["text,label", *ROWS_WITH_COMMAS, "fine,a"]))
    with pytest.raises(BadColumns, match="d.csv: lines 2, 3 have more fields than the 2 .*quotes"):
        ingest(path, blobs, "text")
    path.write_bytes("\n".join(f"очень хорошо {i},да" for i in range(40)).encode("cp1251"))
    with pytest.raises(BadSample, match="iconv -f ENCODING -t UTF-8 d.csv"):
        ingest(path, blobs, "text")
    path.write_bytes(b"\x00\x01\x02text,label\n" * 9)
    with pytest.raises(BadSample, match="neither"):
        ingest(path, blobs, "text")
    with pytest.raises(DataNotFound):
        ingest(tmp_path / "none.csv", blobs, "text")
    assert not list(blobs.stored())


ROWS_WITH_COMMAS = ["well, yes,a", "no, never, ever,b"]


def test_files_of_a_folder_are_written_alike(tmp_path: Path) -> None:
    folder, blobs = tmp_path / "d", Blobs(tmp_path / "blobs")
    folder.mkdir()
    for name in ("train", "test"):
        (folder / f"{name}.csv").write_text(text(";", HEADER + ROWS))
    (folder / "README.md").write_text("about\n")
    (folder / ".gitattributes").write_text("*.csv text\n")  # as a clone of a hub has it
    (folder / "v1.2").mkdir()
    found = ingest(folder, blobs, "text")
    assert (found.test.rows, found.notes[:1]) == (40, ("fields are separated by semicolons",))
    (folder / "test.csv").write_text(text("\t", HEADER + ROWS))
    with pytest.raises(BadColumns, match=r"test\.csv, train\.csv are written in different ways"):
        ingest(folder, blobs, "text")


@pytest.mark.parametrize("beside", ["LICENSE.txt", "about.json", "old.csv"])
def test_what_lies_beside_the_files_of_a_folder_changes_nothing(
    tmp_path: Path, beside: str
) -> None:
    folder = tmp_path / "größe 1"
    folder.mkdir()
    rows = [(f"sentence {i}", ("01", "NA")[i % 2]) for i in range(40)]
    (tmp_path / "rows.csv").write_text(text(";", HEADER + rows))
    (folder / "train.csv").symlink_to(tmp_path / "rows.csv")
    (folder / beside).write_text('{"a": "of no split"}\n')
    found = ingest(folder, Blobs(tmp_path / "blobs"), "text")
    assert found.classes == ("01", "NA")
    noted = "left out, of no split: old.csv" in found.notes
    assert noted == (beside == "old.csv")


def test_a_packed_file_is_read_as_it_was_before(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    rows = [(f"Sätze {i}", ("01", "NA")[i % 2]) for i in range(40)]
    packed = gzip.compress(text(";", HEADER + rows).encode("latin-1"))
    (tmp_path / "d").mkdir()
    for file in (tmp_path / "rows.csv.gz", tmp_path / "d/train.csv.gz"):
        file.write_bytes(packed)
    for data in (tmp_path / "rows.csv.gz", tmp_path / "d"):
        assert ingest(data, blobs, "text").classes == ("01", "NA")
    (tmp_path / "half.csv.gz").write_bytes(packed[:-20])
    with pytest.raises(BadSample, match=r"half\.csv\.gz cannot be read"):
        ingest(tmp_path / "half.csv.gz", blobs, "text")


def test_files_of_one_name_in_several_folders_are_written_alike(tmp_path: Path) -> None:
    for folder, rows in (("one", HEADER + ROWS), ("two", ROWS)):
        (tmp_path / "d" / folder).mkdir(parents=True)
        (tmp_path / "d" / folder / "data.csv").write_text(text(";", rows))
    with pytest.raises(BadColumns, match=r"one/data\.csv, two/data\.csv are written in different"):
        ingest(tmp_path / "d", Blobs(tmp_path / "blobs"), "text")


def test_tabs_by_name_and_unlabelled_lines(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    (tmp_path / "d.tsv").write_text(text("\t", HEADER + ROWS))
    assert ingest(tmp_path / "d.tsv", blobs, "text").classes == ("a", "b")
    (tmp_path / "one.csv").write_text("\n".join(["text", *(f"line {i}" for i in range(20))]))
    assert ingest_samples(tmp_path / "one.csv", blobs, "text").rows == 20


def test_codes_that_begin_with_zeros_are_no_numbers(tmp_path: Path) -> None:
    codes = ("01", "1", "007", "0")
    rows = [f"a sentence {i},{codes[i % 4]}" for i in range(80)]
    path = lines_in(tmp_path / "d.csv", ["text,label", *rows])
    assert ingest(path, Blobs(tmp_path / "blobs"), "text").classes == ("0", "007", "01", "1")


@pytest.mark.parametrize("name", ["a" * 5000 + "!", "a b" * 2000, "a." * 3000, "é" * 9000 + "\x7f"])
def test_a_first_line_that_is_long_costs_little(tmp_path: Path, name: str) -> None:
    """400 letters took a quarter of a minute, and twice as many sixteen times that."""
    path = tmp_path / "d.csv"
    path.write_text("\n".join([f"{name},b", *(f"t{i},{'ab'[i % 2]}" for i in range(40))]))
    began = time.process_time()
    assert not sniff_dialect(path).header
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", ["REVIEWS.CSV", "Reviews.Csv", "REVIEWS.CSV.GZ", "REVIEWS.CSV.gz"])
def test_a_name_in_capital_letters_says_the_same(tmp_path: Path, blobs: Blobs, name: str) -> None:
    file = text(",", HEADER + ROWS).encode()
    (tmp_path / name).write_bytes(gzip.compress(file) if name.lower().endswith("gz") else file)
    assert rows_of(tmp_path / name, blobs)[0] <= set(ROWS)


def test_a_name_is_no_pattern(tmp_path: Path, blobs: Blobs) -> None:
    folder = tmp_path / "[2024] a*"
    folder.mkdir()
    path, beside = folder / "reviews[1].csv", folder / "reviews1.csv"
    path.write_text(text(",", HEADER + ROWS))
    beside.write_text("text,label\nof another file,c\n")
    found = rows_of(path, blobs)[0]
    assert len(found) > 30
    assert found <= set(ROWS)
    with pytest.raises(BadConfig, match="rename it"):
        ingest(folder, blobs, "text")


def lines_in(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    return path


def test_classes_are_told_by_all_of_a_file(tmp_path: Path) -> None:
    """Of 10,000 lines pandas would make texts, and truths of the next two."""
    rows = [f"t {i},{('TRUE', 'FALSE', 'half')[i % 3]}" for i in range(10_000)]
    path = lines_in(tmp_path / "d.csv", ["text,label", *rows, "x,TRUE", "y,TRUE"])
    found = ingest(path, Blobs(tmp_path / "blobs"), "text")
    assert found.classes == ("FALSE", "TRUE", "half")


def test_a_column_that_becomes_text_late_is_read(tmp_path: Path) -> None:
    names = (str(i) if i < 10_000 else f"x{i}" for i in range(10_100))
    rows = [f"{name},t {i},{'ab'[i % 2]}" for i, name in enumerate(names)]
    path = lines_in(tmp_path / "d.csv", ["id,text,label", *rows])
    assert ingest(path, Blobs(tmp_path / "blobs"), "text").classes == ("a", "b")


def test_what_is_text_in_one_file_is_text_in_all(tmp_path: Path) -> None:
    for name, labels in (("train", ("True", "False", "Unknown")), ("test", ("True", "False"))):
        rows = [f"{name} {i},{labels[i % len(labels)]}" for i in range(60)]
        lines_in(tmp_path / "d" / f"{name}.csv", ["text,label", *rows])
    found = ingest(tmp_path / "d", Blobs(tmp_path / "blobs"), "text")
    assert found.classes == ("False", "True", "Unknown")


LATIN = "\n".join(["text,label", *(f"café {i},{'ab'[i % 2]}" for i in range(40))]).encode("latin-1")
HALF = "\n".join(["text,label", *(f"t {i},{'ab'[i % 2]}" for i in range(40))]).encode("utf-16")


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf" + LATIN, HALF + b"x"])
def test_a_mark_that_lies_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "d.csv").write_bytes(raw)
    with pytest.raises(BadSample, match=r"d\.csv"):
        ingest(tmp_path / "d.csv", Blobs(tmp_path / "blobs"), "text")


def test_no_row_is_lost_before_a_long_text(tmp_path: Path) -> None:
    rows = [f"{'w ' * 70_000 if i == 1 else f'good{i}'},{'ab'[i % 2]}" for i in range(40)]
    found = ingest(lines_in(tmp_path / "d.csv", rows), Blobs(tmp_path / "blobs"), "text")
    assert sum(one.rows for one in (found.train, found.validation, found.test)) + found.probe == 40


@pytest.mark.parametrize("names", [("true", "false"), ("False", "True")])
def test_truths_that_are_named_keep_their_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = [f"t {i} {'yes' if i % 2 else 'no'},{'true' if i % 2 else 'false'}" for i in range(60)]
    path, blobs = lines_in(tmp_path / "d.csv", ["text,label", *rows]), Blobs(tmp_path / "blobs")
    found = ingest(path, blobs, "text", Reading(classes=names))
    for text, label in zip(*labelled_rows(blobs, found.train), strict=True):
        assert ("yes" in str(text)) == (found.classes[label].lower() == "true")


def test_classes_of_several_types_are_named_as_they_are(tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"t {i}", "label": [1, "été"][i % 2]}) for i in range(60)]
    found = ingest(lines_in(tmp_path / "d.jsonl", rows), Blobs(tmp_path / "blobs"), "text")
    assert found.classes == ("1", "été")


def test_a_late_number_among_texts_of_a_large_file_is_refused(tmp_path: Path) -> None:
    """And no other text becomes JSON in quotes."""
    words = "w " * 500
    rows = [{"text": f"café {i} {words}", "label": "ab"[i % 2]} for i in range(12_000)]
    path = lines_in(
        tmp_path / "d.jsonl", [json.dumps(row | {"n": i}) for i, row in enumerate(rows)]
    )
    found = ingest(path, Blobs(tmp_path / "blobs"), "text", Reading(input_column="text"))
    assert found.classes == ("a", "b")
    lines = path.read_text().splitlines()
    lines[-5] = json.dumps({"text": 7, "label": "a", "n": 0})
    with pytest.raises(BadSample, match="found int '7'"):
        ingest(
            lines_in(path, lines), Blobs(tmp_path / "blobs"), "text", Reading(input_column="text")
        )


def split_of(text: str, labels: tuple[object, object]) -> Dataset:
    rows = range(40)
    return Dataset.from_dict(
        {text: [f"{text} {i}" for i in rows], "label": [labels[i % 2] for i in rows]}
    )


def test_splits_of_other_types_are_refused(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    words = split_of("text", (0, 1)).cast_column("label", ClassLabel(names=["ham", "spam"]))
    numbers, truths = split_of("text", (0, 1)), split_of("text", (False, True))
    for train, test in ((words, numbers), (numbers, words), (numbers, truths)):
        with pytest.raises(EmptySplit, match="split train has no row of class"):
            ingest(DatasetDict({"train": train, "test": test}), blobs, "text")
    other = DatasetDict(
        {"train": split_of("text", ("a", "b")), "test": split_of("sentence", ("a", "b"))}
    )
    with pytest.raises(BadColumns, match="split test has no column 'text'"):
        ingest(other, blobs, "text")
