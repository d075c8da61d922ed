"""Data of a hub: splits without labels, and configurations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from datasets import Dataset, load_dataset
from datasets.packaged_modules.csv.csv import Csv, CsvConfig

from cluster.data import sources
from cluster.data.ingest import ingest, ingest_shots
from cluster.domain.tasks import Reading
from cluster.storage.blobs import Blobs
from tacl.errors import BadSample, DataNotFound, LabelOutOfRange
from tests.support.data_files import csv, hub_splits, rows, stored


@pytest.mark.parametrize("numbered", [True, False], ids=["names", "numbers"])
def test_a_split_without_labels_is_left_out_and_the_next_is_the_test(
    blobs: Blobs, numbered: bool
) -> None:
    data = hub_splits([-1] * 30, [0, 1] * 10, numbered)
    found = ingest(data, blobs, "text")
    assert found.left_out == ("test",)
    assert {row["input"].split()[0] for row in rows(blobs, found.test)} == {"validation"}
    assert (found.test.rows, len(found.classes)) == (20, 2)
    shots = ingest_shots(data, blobs, "text", 3)
    assert shots.held_out is not None
    assert shots.held_out.rows == 20


def test_without_any_labelled_split_to_test_on_some_training_rows_are_cut_off(blobs: Blobs) -> None:
    found = ingest(hub_splits([-1] * 30, [-1] * 20), blobs, "text")
    assert found.left_out == ("test", "validation")
    assert {row["input"].split()[0] for row in rows(blobs, found.test)} == {"train"}
    assert ingest(hub_splits([0, 1] * 10, [0, 1]), blobs, "text").left_out == ()


def test_minus_one_is_a_class_where_it_is_trained(blobs: Blobs) -> None:
    data = hub_splits([-1] * 20, [-1, 1] * 10, numbered=False)
    labels = {"text": [f"t{i}" for i in range(100)], "label": [-1, 1] * 50}
    data["train"] = Dataset.from_dict(labels)
    found = ingest(data, blobs, "text")
    assert (found.classes, found.test.rows, found.left_out) == (("-1", "1"), 20, ())


@pytest.mark.parametrize(("test", "row"), [([-1, 0] * 10, 0), ([1] * 19 + [-1], 19)])
def test_a_split_with_some_labels_only_is_refused(
    tmp_path: Path, blobs: Blobs, test: list[int], row: int
) -> None:
    with pytest.raises(LabelOutOfRange, match=f"row {row} of split test: -1"):
        ingest(hub_splits(test, [0, 1] * 10), blobs, "text")
    assert stored(tmp_path) == []


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An id of a hub with the configurations `few` and `many.v2`, which is a folder here."""
    csv(tmp_path / "hub/few/train.csv", 40)
    csv(tmp_path / "hub/many/train.csv", 100)
    card = [{"config_name": "few", "data_files": "few/*"}]
    card += [{"config_name": "many.v2", "data_files": "many/*"}]
    (tmp_path / "hub/README.md").write_text(f"---\nconfigs: {json.dumps(card)}\n---\n")

    def load(name: str, configuration: str | None = None) -> object:
        assert name == "someone/several"
        return load_dataset(str(tmp_path / "hub"), configuration, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(sources, "load_dataset", load)
    return "someone/several"


def test_a_hub_id_names_one_of_several_configurations(hub: str, blobs: Blobs) -> None:
    for configuration, samples in (("few", 32), ("many.v2", 80)):
        assert ingest(f"{hub}:{configuration}", blobs, "text").shard.rows == samples


@pytest.mark.parametrize("configuration", ["", ":all"])
def test_configurations_are_listed_where_none_of_them_is_named(
    hub: str, blobs: Blobs, configuration: str
) -> None:
    why = f"{hub}{configuration} names none .*: 'few', 'many.v2'.* ID:CONFIGURATION"
    with pytest.raises(DataNotFound, match=why):
        ingest(f"{hub}{configuration}", blobs, "text")


def test_configurations_that_were_downloaded_before_are_listed() -> None:
    found = "There are multiple 'a/b' configurations in the cache: few, many\nPlease specify which"
    with pytest.raises(DataNotFound, match="a/b names none .*: few, many. .* ID:CONFIGURATION"):
        raise sources._unreadable("a/b", ValueError(found))


def test_what_a_column_of_a_hub_holds_is_told_by_all_of_a_file(
    hub: str, tmp_path: Path, blobs: Blobs
) -> None:
    rows = [{"text": f"{i} {'w ' * 500}", "label": "ab"[i % 2], "n": i} for i in range(12_000)]
    rows[-5]["text"] = 7
    for folder in ("few", "many"):  # one format of all is found
        (tmp_path / "hub" / folder / "train.csv").unlink()
        file = tmp_path / "hub" / folder / "train.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(BadSample, match="row 11995 .*found int '7'"):
        ingest(f"{hub}:many.v2", blobs, "text", Reading(input_column="text"))


def compressed(path: Path) -> str:
    """A table whose classes are numbers for ten thousand lines."""
    rows = "".join(f"text {number},{number % 2}\n" for number in range(10_010))
    table = f"text,label\n{rows}" + "".join(f"other {number},NA\n" for number in range(30))
    path.write_bytes(gzip.compress(table.encode(), 1))
    return str(path)


def test_what_a_compressed_table_holds_is_told_by_all_of_it(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest(compressed(tmp_path / "here.csv.gz"), blobs, "text")
    assert found.classes == ("0", "1", "NA")


def test_a_table_of_a_hub_is_read_as_one_of_this_machine(
    hub: str, tmp_path: Path, blobs: Blobs
) -> None:
    compressed(tmp_path / "hub/many/train.csv.gz")
    (tmp_path / "hub/many/train.csv").unlink()
    assert ingest(f"{hub}:many.v2", blobs, "text").classes == ("0", "1", "NA")


def test_codes_of_a_hub_that_begin_with_zeros_are_no_numbers(
    hub: str, tmp_path: Path, blobs: Blobs
) -> None:
    """In each of its files, whatever another holds."""
    for name, codes in (("train.csv", ("01", "1", "007", "0")), ("other.csv", ("0", "1"))):
        lines = [f"{name} {number},{codes[number % len(codes)]}" for number in range(80)]
        (tmp_path / "hub/many" / name).write_text("\n".join(["text,label", *lines]))
    assert ingest(f"{hub}:many.v2", blobs, "text").classes == ("0", "007", "01", "1")


def test_what_another_program_kept_of_a_hub_is_not_taken(tmp_path: Path) -> None:
    """`datasets` keeps what it read, in its own way, under the commit of the hub."""

    class Usual(Csv):
        BUILDER_CONFIG_CLASS = CsvConfig

    file = csv(tmp_path / "train.csv")
    kept = [
        kind(str(tmp_path), "several", hash="c0ffee", data_files=str(file)).cache_dir
        for kind in (Csv, Usual)
    ]
    assert kept[0] != kept[1]


def test_a_table_of_a_hub_may_have_a_separator_of_several_letters(
    hub: str, tmp_path: Path, blobs: Blobs
) -> None:
    card = [{"config_name": "many.v2", "data_files": "many/*", "sep": "::"}]
    (tmp_path / "hub/README.md").write_text(f"---\nconfigs: {json.dumps(card)}\n---\n")
    lines = ["text::label", *(f"text {number}::{'ab'[number % 2]}" for number in range(40))]
    (tmp_path / "hub/many/train.csv").write_text("\n".join(lines))
    assert ingest(f"{hub}:many.v2", blobs, "text").classes == ("a", "b")


def test_the_hub_is_asked_for_the_id_without_its_configuration(
    hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sources, "_ask_hub", asked.append)
    with sources.opened(f"{hub}:few") as found:
        assert found.splits["train"].num_rows == 40
    assert asked == [hub]
    assert sources.located(f"{hub}:many.v2") is None
    for nothing in ("data.csv", "data.csv:few", "some/where/else", f"{hub}:", f"{hub}:a/b"):
        with pytest.raises(DataNotFound, match="no file or folder"):
            sources.located(nothing)
    with pytest.raises(DataNotFound, match="no data are named"):
        sources.located("")  # not the folder that it is asked from
