"""What people give a client is checked before anything is asked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from PIL import Image as picture

from cluster.client.arguments import (
    parted,
    possible,
    raw_input,
    raw_inputs,
    require_checkpoint,
    uploadable,
)
from cluster.data.ingest import ingest
from cluster.domain.tasks import Options, Reading
from cluster.storage.blobs import Blobs
from tacl.errors import BadCheckpoint, BadConfig, BadSample, DataNotFound, TooLarge


def test_the_name_of_a_file_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mail.txt", "mail"):
        (tmp_path / name).write_text("Stocks fell.")
    with pytest.raises(BadSample, match=r'mail\.txt is a file.*ask "\$\(cat mail\.txt\)"'):
        raw_input("mail.txt", "text")
    (tmp_path / "a mail.txt").write_text("Stocks fell.")
    with pytest.raises(BadSample, match=r"""ask "\$\(cat 'a mail\.txt'\)\""""):
        raw_input("a mail.txt", "text")
    no_names = "株価は月曜日に下落した." * 20 + "終わり", "a\nb.txt", "long " * 100 + "mail.txt"
    for text in ("mail", "other.txt", "Stocks fell on Monday.", *no_names):
        assert raw_input(text, "text") == text


def test_a_text_of_another_encoding_is_refused() -> None:
    with pytest.raises(BadSample, match=r"the question: 'caf\\udce9' is no UTF-8"):
        raw_input(b"caf\xe9".decode(errors="surrogateescape"), "text")


def test_one_text_is_no_list_of_its_letters() -> None:
    for one in ("Stocks fell.", b"a picture", Path("picture.png")):
        with pytest.raises(BadSample, match="inputs are a list"):
            raw_inputs(cast(Any, one), "text")
    assert raw_inputs(("Stocks fell.",), "text") == ["Stocks fell."]


def test_nothing_is_no_question() -> None:
    with pytest.raises(BadSample, match="the list of inputs is empty"):
        raw_inputs([], "text")


def test_a_long_text_names_no_file() -> None:
    text = "Stocks fell on Monday. " * 20
    with pytest.raises(DataNotFound, match="no picture at .*the base of this home reads pictures"):
        raw_input(text, "image")
    with pytest.raises(DataNotFound, match="no file on this machine"), uploadable(text, {}):
        pass


def test_a_film_is_not_read_whole(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    with film.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge, match=r"film\.mp4: more than 32 MiB"):
        raw_input(film, "image")


def test_a_checkpoint_is_there_or_on_a_hub(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="no checkpoint at .*/acme/trec; .* hf:OWNER/NAME"):
        require_checkpoint("acme/trec")
    with pytest.raises(BadCheckpoint, match="no checkpoint at .*/~nobody-here/trec"):
        require_checkpoint("~nobody-here/trec")
    for known in (str(tmp_path), "hf:acme/trec"):
        require_checkpoint(known)


def test_what_is_said_of_rows_is_told_from_other_keywords() -> None:
    found = parted({"seed": 1, "classes": ["ham", "spam"], "label_column": None})
    assert found == (Reading(classes=("ham", "spam")), {"seed": 1})
    with pytest.raises(BadConfig, match="classes: Input should be a valid tuple"):
        parted({"classes": "ham,spam"})


def test_an_option_that_is_not_there_is_told_with_the_nearest_one() -> None:
    with pytest.raises(BadConfig, match=r"step: there is no such field \(did you mean steps\?\)"):
        possible(Options, {"step": 20})
    with pytest.raises(BadConfig, match="steps: Input should be .* equal to 1, not 0$"):
        possible(Options, {"steps": 0})
    with pytest.raises(BadConfig, match="^options that are not possible: steps: .{1,99}$"):
        possible(Options, {"steps": 10**5000})  # Python prints no such number


def test_a_picture_that_was_opened_already_is_named() -> None:
    with pytest.raises(BadSample, match="found Image where a picture's path or bytes"):
        raw_inputs([cast(bytes, picture.new("RGB", (4, 4)))], "image")


def test_pictures_that_rows_name_travel_with_them(tmp_path: Path) -> None:
    named = [str(tmp_path / f"{number}.png") for number in range(20)]
    for number, path in enumerate(named):
        picture.new("L", (4, 4), number).save(path)
    labels = Features({"image": Image(), "label": ClassLabel(names=["dark", "light"])})
    rows = Dataset.from_dict({"image": named, "label": [0, 1] * 10}, labels)
    with uploadable(rows, {}) as file:
        found = ingest(file, Blobs(tmp_path / "blobs"), "image")
        (column,) = pq.read_table(file, columns=["image"]).columns
    assert found.classes == ("dark", "light")
    assert found.rows == ingest(rows, Blobs(tmp_path / "blobs"), "image").rows
    assert column[0].as_py()["path"] == "0.png"  # where it lies here concerns nobody there
    Path(named[3]).unlink()
    with pytest.raises(BadSample, match=r"3\.png"), uploadable(rows, {}):
        pass


def test_what_would_not_arrive_as_it_is_here_is_not_uploaded() -> None:
    rows = Dataset.from_dict({"text": ["A"]}).with_transform(lambda rows: {"text": ["a"]})
    with pytest.raises(BadConfig, match="has a transform, which is not uploaded"):
        uploadable(rows, {}).__enter__()
    with pytest.raises(BadConfig, match="one split is uploaded; found none"):
        uploadable(DatasetDict(), {}).__enter__()


def test_a_full_disk_is_no_fault_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"), uploadable({"text": ["A"]}, {}):
        pass
