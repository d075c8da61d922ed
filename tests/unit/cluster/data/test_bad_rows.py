"""Bad rows are all found, said with their lines, and left out where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset
from fastapi.testclient import TestClient

from cluster.client.client import Client
from cluster.client.http import Server
from cluster.data.ingest import ingest, ingest_samples
from cluster.domain.tasks import Options, Reading
from cluster.storage.blobs import Blobs
from cluster.storage.samples import labelled_rows
from tacl.errors import BadColumns, BadSample, EmptySplit, LabelOutOfRange, TaclError
from tests.support.api_scene import scene


def csv(path: Path, bad: dict[int, str], rows: int = 60) -> Path:
    """`bad`: what stands at a line instead."""
    lines = ["text,label", *(f"sentence {i},{'ab'[i % 2]}" for i in range(rows))]
    for line, content in bad.items():
        lines[line - 1] = content
    path.write_text("\n".join(lines))
    return path


def said(error: type[TaclError], data: Path | Dataset, blobs: Blobs, **how: object) -> str:
    with pytest.raises(error) as caught:
        ingest(data, blobs, "text", **how)  # type: ignore[arg-type]
    assert not list(blobs.stored())
    return str(caught.value)


def test_one_empty_label_is_said_with_its_line(tmp_path: Path, blobs: Blobs) -> None:
    told = said(LabelOutOfRange, csv(tmp_path / "d.csv", {19: "no label,"}), blobs)
    assert told.startswith(
        "row 17 of split train (line 19): nothing in column 'label' is no class."
    )
    assert "--skip-bad" in told


def test_the_first_ten_are_said_and_how_many_more(tmp_path: Path, blobs: Blobs) -> None:
    bad = dict.fromkeys(range(5, 30, 2), " ,a")  # thirteen
    told = said(BadSample, csv(tmp_path / "d.csv", bad), blobs)
    assert told.startswith("13 bad rows: row 3 of split train (line 5): the text is blank; row 5")
    assert [f"(line {line})" in told for line in range(5, 30, 2)] == [True] * 10 + [False] * 3
    assert "; and 3 more." in told


def test_lines_are_those_of_the_file(tmp_path: Path, blobs: Blobs) -> None:
    """A row may take several lines, and lines may be blank."""
    lines = {3: '"two\nlines",a', 4: "", 10: " ,b"}
    assert "row 7 of split train (line 11): the text" in said(
        BadSample, csv(tmp_path / "d.csv", lines), blobs
    )
    rows = [
        json.dumps({"text": f"t{i}", "label": "ab"[i % 2] if i != 5 else ""}) for i in range(40)
    ]
    (tmp_path / "d.jsonl").write_text("\n".join(["", *rows]))
    assert "row 5 of split train (line 7)" in said(LabelOutOfRange, tmp_path / "d.jsonl", blobs)


def test_bad_rows_are_left_out_and_counted(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", {4: ",a", 9: "no class,", 21: " ,", 30: "odd,c"})
    found = ingest(data, blobs, "text", skip_bad=True, reading=Reading(classes=("a", "b")))
    assert (found.skipped, found.classes) == (4, ("a", "b"))
    assert found.train.rows + found.probe + found.validation.rows + found.test.rows == 56
    for part in (found.train, found.validation, found.test):
        texts, labels = labelled_rows(blobs, part)
        assert [int(str(text).split()[1]) % 2 for text in texts] == labels
    (note,) = found.notes
    assert note.startswith("left out: 4 bad rows: row 2 of split train (line 4)")
    assert "row 28 of split train (line 30): 'c' in column" in note


def test_a_class_of_bad_rows_alone_is_no_class(blobs: Blobs) -> None:
    rows = {"text": [f"t{i}" for i in range(30)], "label": ["a", "b", "c"] * 10}
    rows["text"] = [t if c != "c" else " " for t, c in zip(*rows.values(), strict=True)]
    assert ingest(rows, blobs, "text", skip_bad=True).classes == ("a", "b")
    with pytest.raises(EmptySplit, match="no good row: 30 bad rows"):
        ingest(rows | {"text": [" "] * 30}, blobs, "text", skip_bad=True)


def test_samples_list_bad_rows_too(blobs: Blobs) -> None:
    with pytest.raises(BadSample, match=r"^2 bad rows: .*row 7 "):
        ingest_samples(
            {"text": [" " if i in (3, 7) else f"t{i}" for i in range(20)]}, blobs, "text"
        )


def test_over_http_it_is_an_option_and_the_answer_tells(tmp_path: Path) -> None:
    app, _ = scene(tmp_path / "home", ann="submitter")
    with TestClient(app, raise_server_exceptions=False) as http:
        client = Client(server=Server("http://test", "token of ann", http))
        data = csv(tmp_path / "d.csv", {9: "no class,"})
        with pytest.raises(LabelOutOfRange, match=r"\(line 9\)"):
            client.submit("news", data)
        done = client.submit("news", data, skip_bad=True)
        assert (done.skipped, len(done.notes)) == (1, 1)
        assert "(line 9)" in done.notes[0]


def test_runs_of_before_have_the_same_identity() -> None:
    assert "skip_bad" not in Options().model_dump()
    assert Options(skip_bad=True).model_dump()["skip_bad"] is True


# -- what is no classification of one class, and what is little


@pytest.mark.parametrize(
    ("labels", "words"),
    [([[0, 1]] * 40, "multi-label"), ([i / 7 for i in range(40)], "regression")],
)
@pytest.mark.parametrize(
    ("column", "named"), [("label", None), ("label", "label"), ("stars", None)]
)
def test_what_is_not_supported_is_said(
    blobs: Blobs, labels: list[object], words: str, column: str, named: str | None
) -> None:
    data = Dataset.from_dict({"text": [f"t{i}" for i in range(40)], column: labels})
    told = said(BadColumns, data, blobs, reading=Reading(label_column=named))
    assert words in told
    assert "not supported" in told


def test_numbers_that_a_missing_one_made_floats_are_classes(blobs: Blobs) -> None:
    labels = [float(i % 3) if i != 5 else None for i in range(60)]
    data = {"text": [f"t{i}" for i in range(60)], "label": labels}
    assert pa.table(data).schema.field("label").type == pa.float64()
    told = said(LabelOutOfRange, Dataset.from_dict(data), blobs)
    assert told.startswith("row 5 of split train: nothing in column 'label'")
    found = ingest(data, blobs, "text", skip_bad=True)
    assert (found.classes, found.skipped) == (("0", "1", "2"), 1)


def test_classes_that_are_numbers_beyond_what_floats_hold_are_refused(blobs: Blobs) -> None:
    data = {"text": [f"t{i}" for i in range(40)], "label": [2.0**63, 2.0**64] * 20}
    assert "too large to be exact" in said(BadColumns, Dataset.from_dict(data), blobs)


def test_too_few_rows_are_said_as_such(blobs: Blobs) -> None:
    for columns in (("text", "label"), ("x", "y")):
        two = Dataset.from_dict(dict(zip(columns, (["one", "two"], ["a", "b"]), strict=True)))
        assert said(EmptySplit, two, blobs).startswith("too few rows for a task: 2.")


def test_classes_with_few_rows_are_warned_of(blobs: Blobs) -> None:
    labels = ["a", "b"] * 20 + ["c"] * 3
    data = {"text": [f"t{i}" for i in range(43)], "label": labels}
    (note,) = ingest(data, blobs, "text").notes
    assert note == "classes with fewer than 5 rows are hardly learned: c (3)"


def test_copies_of_rows_are_warned_of(blobs: Blobs) -> None:
    data = {"text": [f"t{i}" for i in range(40)] * 2, "label": ["a", "b"] * 40}
    (note,) = ingest(data, blobs, "text").notes
    assert note.startswith("40 of 80 rows are copies of others")


@pytest.mark.parametrize("labels", [["a", "b", "a|b"], ["x; y", "x; z", "y; z"]])
def test_lists_of_labels_are_warned_of(blobs: Blobs, labels: list[str]) -> None:
    data = {"text": [f"t{i}" for i in range(60)], "label": labels * 20}
    (note,) = ingest(data, blobs, "text").notes
    assert "multi-label" in note
    named = data | {"label": ["law, order", "arts, crafts", "sports"] * 20}
    assert ingest(named, blobs, "text").notes == ()


def test_a_split_that_is_not_needed_is_told(tmp_path: Path, blobs: Blobs) -> None:
    (tmp_path / "d").mkdir()
    for split in ("train", "validation", "test"):
        csv(tmp_path / "d" / f"{split}.csv", {})
    left_out, _copies = ingest(tmp_path / "d", blobs, "text").notes
    assert left_out == "left out, not needed: split validation"
