"""Every kind of bad data is refused with one message, and nothing of it is stored."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, load_dataset
from PIL import Image

from cluster.data import sources
from cluster.data.ingest import Ingested, ingest, ingest_samples, ingest_shots
from cluster.domain.base import BlobRef
from cluster.storage.blobs import Blobs
from tacl.errors import (
    BadColumns,
    BadConfig,
    BadSample,
    DataNotFound,
    EmptySplit,
    LabelOutOfRange,
    ModalityMismatch,
    TooFewClasses,
)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def stored(tmp_path: Path) -> list[Path]:
    return [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()]


def rows(blobs: Blobs, ref: BlobRef) -> list[dict]:
    found = pq.read_table(io.BytesIO(blobs.read(ref.digest))).to_pylist()
    assert len(found) == ref.rows
    return found


def csv(path: Path, n: int = 40, header: str = "text,label", labels: str = "ab") -> Path:
    lines = [header, *(f"sentence number {i},{labels[i % len(labels)]}" for i in range(n))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def png(shade: int, size: int = 8) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (size, size), (shade % 256, 7, 90)).save(out, "PNG")
    return out.getvalue()


def image_folder(folder: Path, classes: str = "ab", n: int = 12, suffix: str = "png") -> Path:
    for i, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for j in range(n):
            picture = Image.new("RGB", (8, 8), (i * 100, j, 0))
            picture.save(folder / name / f"{j:02}.{suffix}")
    return folder


def test_one_split_is_cut_in_three_and_sampled(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest(str(csv(tmp_path / "d.csv", 400)), blobs, "text")
    assert (found.input_column, found.label_column, found.classes) == ("text", "label", ("a", "b"))
    train, validation, test, shard = (
        rows(blobs, ref) for ref in (found.train, found.validation, found.test, found.shard)
    )
    probe = {r["input"] for r in shard if r["probe"]}
    assert (len(validation), len(test), len(probe), len(shard)) == (40, 40, 64, 320)
    trained = {r["input"] for r in train}
    assert len(trained) == 320 - 64
    parts = [trained, probe, {r["input"] for r in validation}, {r["input"] for r in test}]
    assert len(set().union(*parts)) == 400 == sum(len(part) for part in parts)
    assert {r["input"] for r in shard} == trained | probe
    for row in [*train, *validation, *test]:
        assert row["label"] == int(row["input"].split()[-1]) % 2


def test_a_given_test_split_is_left_whole(tmp_path: Path, blobs: Blobs) -> None:
    csv(tmp_path / "d/train.csv", 300)
    csv(tmp_path / "d/test.csv", 30)
    found = ingest(tmp_path / "d", blobs, "text")
    assert found.test.rows == 30
    assert found.validation.rows == 30
    assert found.train.rows == 300 - 30 - 64


def test_a_validation_split_is_the_test_where_there_is_no_other(
    tmp_path: Path, blobs: Blobs
) -> None:
    csv(tmp_path / "d/train.csv", 100)
    csv(tmp_path / "d/validation.csv", 20)
    assert ingest(tmp_path / "d", blobs, "text").test.rows == 20


def hub_splits(test: list[int], validation: list[int], numbered: bool = True) -> DatasetDict:
    """As on a hub: class numbers, in the held-out splits those given."""
    label = ClassLabel(names=["a", "b"]) if numbered else Value("int64")
    features = Features({"text": Value("string"), "label": label})
    splits = {"train": [0, 1] * 50, "validation": validation, "test": test}
    return DatasetDict(
        {
            name: Dataset.from_dict(
                {"text": [f"{name} {i}" for i in range(len(labels))], "label": labels}, features
            )
            for name, labels in splits.items()
        }
    )


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


def test_same_data_and_seed_same_digests(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", 100)
    assert ingest(data, blobs, "text") == ingest(data, blobs, "text")
    assert ingest(data, blobs, "text", seed=1).train != ingest(data, blobs, "text").train


def test_an_edited_file_is_read_again(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", 100)
    before = ingest(data, blobs, "text")
    csv(tmp_path / "d.csv", 200)
    assert ingest(data, blobs, "text").train.rows > before.train.rows


def test_images_keep_their_original_bytes(tmp_path: Path, blobs: Blobs) -> None:
    folder = image_folder(tmp_path / "pictures", suffix="jpg")
    originals = {p.read_bytes(): p.parent.name for p in folder.rglob("*.jpg")}
    found = ingest(folder, blobs, "image")
    assert found.classes == ("a", "b")
    for ref in (found.train, found.validation, found.test):
        for row in rows(blobs, ref):
            assert originals[row["input"]] == found.classes[row["label"]]
    assert all(row["input"] in originals for row in rows(blobs, found.shard))


def test_parquet_of_bytes_without_a_description_is_images(tmp_path: Path, blobs: Blobs) -> None:
    pictures = [{"bytes": png(i), "path": None} for i in range(40)]
    table = pa.table({"picture": pictures, "kind": [i % 4 for i in range(40)]})
    pq.write_table(table, tmp_path / "d.parquet")
    found = ingest(tmp_path / "d.parquet", blobs, "image")
    assert (found.input_column, found.label_column) == ("picture", "kind")
    assert found.classes == ("0", "1", "2", "3")


@pytest.mark.parametrize("name", ["ag_news", "clinc150"])
def test_real_text(shared: Path, blobs: Blobs, name: str) -> None:
    found = ingest(shared / "data/text" / name, blobs, "text")
    manifest = json.loads((shared / "data/manifest.json").read_text())[f"text/{name}"]
    assert list(found.classes) == manifest["class_names"]
    assert found.test.rows == manifest["test_rows"]
    assert found.train.rows + found.validation.rows + 64 == manifest["train_rows"]
    assert found.shard.rows == 1024


def test_real_images(shared: Path, blobs: Blobs) -> None:
    found = ingest(shared / "data/vision/flowers5", blobs, "image")
    assert (len(found.classes), found.validation.rows, found.shard.rows) == (5, 250, 1024)


def test_columns_by_repeated_values_and_by_name(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", header="review,sentiment")
    found = ingest(data, blobs, "text")
    assert (found.input_column, found.label_column) == ("review", "sentiment")
    table = {
        "id": list(range(20)),
        "title": [f"t{i}" for i in range(20)],
        "body": [f"b{i}" for i in range(20)],
        "x": [i % 2 for i in range(20)],
        "y": ["pn"[i % 2] for i in range(20)],
    }
    several = Dataset.from_dict(table)
    with pytest.raises(BadColumns, match="--label-column"):
        ingest(several, blobs, "text")
    with pytest.raises(BadColumns, match=r"title \(string\).*--input-column"):
        ingest(several, blobs, "text", label_column="y")
    named = ingest(several, blobs, "text", label_column="y", input_column="body")
    assert named.classes == ("n", "p")
    with pytest.raises(BadColumns, match="no column 'bodi'"):
        ingest(several, blobs, "text", label_column="y", input_column="bodi")
    with pytest.raises(BadColumns, match="20 different values in 20 rows"):
        ingest(several, blobs, "text", label_column="id", input_column="body")


def test_numbers_get_the_names_given(blobs: Blobs) -> None:
    data = Dataset.from_dict({"text": [f"t{i}" for i in range(20)], "label": [0, 1] * 10})
    assert ingest(data, blobs, "text").classes == ("0", "1")
    assert ingest(data, blobs, "text", classes=["cat", "dog"]).classes == ("cat", "dog")
    ten = Dataset.from_dict({"text": [f"t{i}" for i in range(60)], "label": [2, 10, 3] * 20})
    assert ingest(ten, blobs, "text").classes == ("2", "3", "10")


def test_a_declared_class_without_rows_is_left_out(tmp_path: Path, blobs: Blobs) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["a", "none", "b"])})
    table = {"text": [f"t{i}" for i in range(20)], "label": [0, 2] * 10}
    found = ingest(Dataset.from_dict(table, features=features), blobs, "text")
    assert found.classes == ("a", "b")
    assert {r["label"] for r in rows(blobs, found.train)} == {0, 1}


def test_the_probe_leaves_every_class_a_training_row(blobs: Blobs) -> None:
    labels = [f"c{i:03}" for i in range(100) for _ in range(2)]
    data = DatasetDict(
        {
            "train": Dataset.from_dict({"text": [f"t{i}" for i in range(200)], "label": labels}),
            "test": Dataset.from_dict({"text": ["x", "y"], "label": ["c000", "c001"]}),
        }
    )
    with pytest.raises(EmptySplit, match="too few"):
        ingest(data, blobs, "text")  # one row a class for validation, one to train: none to probe
    data["train"] = Dataset.from_dict(
        {"text": [f"t{i}" for i in range(300)], "label": labels + labels[::2]}
    )
    found = ingest(data, blobs, "text")
    assert len({r["label"] for r in rows(blobs, found.train)}) == 100


def test_samples_need_no_labels(tmp_path: Path, blobs: Blobs) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(f"line {i}" for i in range(2000)))
    ref = ingest_samples(tmp_path / "lines.txt", blobs, "text")
    found = rows(blobs, ref)
    assert len({r["input"] for r in found}) == 1024
    assert sum(r["probe"] for r in found) == 64
    flat = image_folder(tmp_path / "pictures", "a", 20) / "a"
    assert ingest_samples(flat, blobs, "image").rows == 20
    assert ingest_samples(csv(tmp_path / "d.csv"), blobs, "text").rows == 40
    with pytest.raises(ModalityMismatch):
        ingest_samples(flat, blobs, "text")


def test_progress_counts_every_row_checked(tmp_path: Path, blobs: Blobs) -> None:
    seen: list[tuple[int, int]] = []
    ingest(csv(tmp_path / "d.csv", 100), blobs, "text", progress=lambda *p: seen.append(p))
    assert seen[-1] == (100, 100)


# -- what is refused


def truncated(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    whole = io.BytesIO()
    Image.fromarray(noise).save(whole, "JPEG")
    (folder / "b/07.png").unlink()
    (folder / "b/07.jpg").write_bytes(whole.getvalue()[:-900])
    return folder


def garbage(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    (folder / "a/03.png").write_bytes(b"this is no picture")
    return folder


def blank_file(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    (folder / "a/03.png").write_bytes(b"")
    return folder


def json_lines(tmp_path: Path, odd: object) -> Path:
    texts: list[object] = [f"text {i}" for i in range(40)]
    texts[17] = odd
    lines = [json.dumps({"text": t, "label": "ab"[i % 2]}) for i, t in enumerate(texts)]
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(lines))
    return path


def bytes_as_text(tmp_path: Path) -> Path:
    raw = pa.array([b"\xff\xfe\xfd" if i == 5 else b"fine" for i in range(40)])
    table = pa.table({"text": raw.view(pa.string()), "label": ["ab"[i % 2] for i in range(40)]})
    pq.write_table(table, tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def numbers_as_text(tmp_path: Path) -> Path:
    table = pa.table({"text": list(range(40)), "label": ["ab"[i % 2] for i in range(40)]})
    pq.write_table(table, tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def empty_test(tmp_path: Path) -> Path:
    csv(tmp_path / "d/train.csv")
    (tmp_path / "d/test.csv").write_text("text,label\n")
    return tmp_path / "d"


def empty_parquet(tmp_path: Path) -> Path:
    strings = pa.array([], pa.string())
    pq.write_table(pa.table({"text": strings, "label": strings}), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def unseen_class(tmp_path: Path) -> Path:
    csv(tmp_path / "d/train.csv", labels="ab")
    csv(tmp_path / "d/test.csv", labels="abz")
    return tmp_path / "d"


def class_label_outside(tmp_path: Path) -> Path:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["a", "b"])})
    data = Dataset.from_dict({"text": [f"t{i}" for i in range(40)], "label": [0, 1] * 20}, features)
    data.to_parquet(tmp_path / "good.parquet")
    good = pq.read_table(tmp_path / "good.parquet")
    labels = pa.array([0, 1] * 19 + [0, 7], pa.int64())
    pq.write_table(good.set_column(1, good.schema.field(1), labels), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def folder_of(tmp_path: Path, name: str, content: bytes) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_bytes(content)
    return tmp_path / "d"


REFUSED = {
    "no such path": (lambda p: p / "nothing/here.csv", "text", {}, DataNotFound, "here.csv"),
    "no such folder": (lambda p: "../nowhere", "text", {}, DataNotFound, "nowhere"),
    "unknown hub id": (lambda p: "someone/something", "text", {}, DataNotFound, "someone"),
    "empty folder": (lambda p: p, "text", {}, DataNotFound, "read"),
    "odd format": (lambda p: folder_of(p, "a.weird", b"x"), "text", {}, DataNotFound, "Parquet"),
    "broken parquet": (
        lambda p: folder_of(p, "a.parquet", b"PAR1 and no more"),
        "text",
        {},
        BadSample,
        "cannot be read",
    ),
    "truncated picture": (truncated, "image", {}, BadSample, r"07\.jpg.*truncated"),
    "no picture": (garbage, "image", {}, BadSample, r"03\.png.*not a readable picture"),
    "empty picture": (blank_file, "image", {}, BadSample, r"03\.png.*empty"),
    "number among texts": (lambda p: json_lines(p, 5), "text", {}, BadSample, "int '5'"),
    "list among texts": (lambda p: json_lines(p, ["a"]), "text", {}, BadSample, "list"),
    "no text": (lambda p: json_lines(p, None), "text", {}, BadSample, "row 17.*nothing"),
    "blank text": (lambda p: json_lines(p, " \n"), "text", {}, BadSample, "row 17.*blank"),
    "zero bytes": (lambda p: json_lines(p, "a\0b"), "text", {}, BadSample, "row 17.*binary"),
    "no utf-8": (bytes_as_text, "text", {}, BadSample, "not text"),
    "numbers as texts": (numbers_as_text, "text", {}, BadColumns, r"text \(int64\)"),
    "numbers named as texts": (
        numbers_as_text,
        "text",
        {"input_column": "text"},
        BadSample,
        "holds no texts",
    ),
    "one class": (lambda p: csv(p / "d.csv", labels="a"), "text", {}, TooFewClasses, "one class"),
    "one folder": (lambda p: image_folder(p / "d", "a"), "image", {}, TooFewClasses, "sub-folder"),
    "empty split": (empty_test, "text", {}, EmptySplit, "without rows"),
    "empty file": (empty_parquet, "text", {}, EmptySplit, "without rows"),
    "only two rows": (lambda p: csv(p / "d.csv", 4), "text", {}, EmptySplit, "rows"),
    "class not in train": (unseen_class, "text", {}, EmptySplit, "no row of class z"),
    "label outside": (class_label_outside, "text", {}, LabelOutOfRange, "row 39.*7.*a, b"),
    "label not listed": (
        lambda p: csv(p / "d.csv", labels="abc"),
        "text",
        {"classes": ["a", "b"]},
        LabelOutOfRange,
        "'c'.*a, b",
    ),
    "texts for pictures": (lambda p: csv(p / "d.csv"), "image", {}, ModalityMismatch, "pictures"),
    "pictures for texts": (
        lambda p: image_folder(p / "d"),
        "text",
        {},
        ModalityMismatch,
        r"image \(image\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_once_and_nothing_stored(tmp_path: Path, blobs: Blobs, case: str) -> None:
    make, modality, options, error, match = REFUSED[case]
    with pytest.raises(error, match=match) as caught:
        ingest(make(tmp_path), blobs, modality, **options)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert stored(tmp_path) == []


def test_the_class_of_an_answer_is_plain_data(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest(csv(tmp_path / "d.csv"), blobs, "text")
    assert isinstance(found, Ingested)
    assert json.loads(found.train.model_dump_json()) == found.train.model_dump()


# -- few labelled rows, to fit a composition to


def test_so_many_rows_of_each_class_are_learned_and_the_rest_judges(
    tmp_path: Path, blobs: Blobs
) -> None:
    data = csv(tmp_path / "d.csv", 41)
    few, more = (ingest_shots(data, blobs, "text", shots) for shots in (2, 5))
    assert few.classes == ("a", "b")
    learned = rows(blobs, few.shots)
    assert [row["label"] for row in learned].count(0) == 2
    assert [row["label"] for row in learned].count(1) == 2
    assert few.held_out is not None
    judged = rows(blobs, few.held_out)
    assert len(judged) == 41 - 4
    inputs = {row["input"] for row in learned}
    assert not inputs & {row["input"] for row in judged}
    assert inputs < {row["input"] for row in rows(blobs, more.shots)}  # more shots hold fewer
    assert ingest_shots(data, blobs, "text", 2) == few


def test_a_test_split_judges(tmp_path: Path, blobs: Blobs) -> None:
    csv(tmp_path / "d" / "train.csv", 20)
    csv(tmp_path / "d" / "test.csv", 30)
    found = ingest_shots(tmp_path / "d", blobs, "text", 3)
    assert found.held_out is not None
    assert (found.shots.rows, found.held_out.rows) == (6, 30)


def test_nothing_is_held_out_where_nothing_is_left(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest_shots(csv(tmp_path / "d.csv", 8), blobs, "text", 4)
    assert (found.shots.rows, found.held_out) == (8, None)


def test_bad_shots_are_refused_and_nothing_is_stored(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", 9)
    with pytest.raises(EmptySplit, match="class b has 4 training rows, and 5 .* fewer shots"):
        ingest_shots(data, blobs, "text", 5)
    with pytest.raises(BadConfig, match="0 shots"):
        ingest_shots(data, blobs, "text", 0)
    with pytest.raises(ModalityMismatch):
        ingest_shots(data, blobs, "image", 2)
    with pytest.raises(TooFewClasses):
        ingest_shots(csv(tmp_path / "one.csv", labels="a"), blobs, "text", 2)
    (tmp_path / "bare.txt").write_text("\n".join(f"a line {i}" for i in range(9)))
    with pytest.raises(BadColumns, match="--label-column"):
        ingest_shots(tmp_path / "bare.txt", blobs, "text", 2)
    (tmp_path / "blank.csv").write_text("text,label\none,a\n ,b\ntwo,a\nthree,b\n")
    with pytest.raises(BadSample, match="blank"):
        ingest_shots(tmp_path / "blank.csv", blobs, "text", 1)
    assert stored(tmp_path) == []
