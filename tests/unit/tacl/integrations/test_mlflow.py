"""Exported models in MLflow's own hands: logged, registered, loaded again, asked."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from tacl.backbone import inputs, load_backbone
from tacl.compose.materialized import materialized, materialized_features
from tacl.errors import BadCheckpoint
from tacl.heads.columns import Columns
from tacl.heads.head import Head
from tacl.integrations import exported
from tacl.integrations.mlflow import log_model
from tacl.interchange.formats import Format
from tacl.interchange.writing import write_heads, write_model
from tests.support import bases, tiny
from tests.support.data_files import grey_of_32_bits

TEXTS = ["the cat sat on the mat", "a dog", "what is in a name"]
FORMATS: dict[str, Format] = {
    "encoder": "transformers",
    "decoder": "transformers",
    "padded on the left": "transformers",
    "open_clip": "open_clip",
    "timm": "timm",
}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    mlflow.set_registry_uri((tmp_path / "store").as_uri())


def spec(kind: str, folder: Path) -> str:
    if kind == "decoder":  # whose tokenizer has no token for padding
        return f"hf:{bases.gpt2(folder)}?size=32"
    if kind == "padded on the left":
        settings = bases.bert(folder) / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"padding_side": "left"}))
    if FORMATS[kind] == "transformers":
        return f"hf:{folder if kind != 'encoder' else bases.bert(folder)}?size=32"
    return tiny.base(folder) if kind == "timm" else "embedded"


@pytest.mark.parametrize("kind", FORMATS)
def test_it_answers_as_the_model_does(kind: str, tmp_path: Path) -> None:
    format = FORMATS[kind]
    backbone, folder = load_backbone(spec(kind, tmp_path)), tmp_path / "alice"
    folder.mkdir()
    write_model(backbone, {}, format, folder)
    rows: list[Any] = TEXTS if format == "transformers" else tiny.pictures(3)[0]
    items = [backbone.prepare(row) for row in rows]
    features = materialized_features(backbone, materialized(backbone.encoder, {}), items)
    torch.manual_seed(0)
    weight = normalize(torch.randn(4, features.shape[1]), dim=-1)
    heads = {
        "trees": Head(weight[:2], 20.0, ("ash", "birch")),
        "signs": Head(weight[2:], 10.0, ("stop", "yield")),
    }
    forgotten = {"cars": Head(100 * normalize(features[:1]), 20.0, ("van",))}
    write_heads({**heads, **forgotten}, folder, answering=tuple(heads))

    told = log_model(folder, "alice", registered=True)
    assert mlflow.MlflowClient().get_model_version("alice", "1").run_id == told.run_id
    column = "text" if format == "transformers" else "image"
    loaded = mlflow.pyfunc.load_model("models:/alice/1")
    found = loaded.predict(pd.DataFrame({column: rows}))

    joint = Columns(heads).joint(features)
    for row, (_, answer) in enumerate(found.iterrows()):
        chances = {(t, n): joint[t][row][c] for t in heads for c, n in enumerate(heads[t].classes)}
        best = max(chances, key=lambda one: chances[one].item())
        assert (answer["task"], answer["label"]) == best
        assert answer["probability"] == pytest.approx(chances[best].item(), abs=2e-3)
    many = loaded.predict(pd.DataFrame({column: rows * 50}))
    assert [*many.label] == [*found.label] * 50
    if kind == "encoder":  # a frame of many rows is passed in parts
        model = loaded.unwrap_python_model()
        seen, whole = list[int](), model._features
        model._features = lambda some: (seen.append(len(some)), whole(some))[1]
        assert len(loaded.predict(pd.DataFrame({column: rows * 50}))) == sum(seen) == 150
        assert max(seen) <= 64
        assert len(model.predict(None, pd.DataFrame({column: []}))) == 0
    code = "".join(path.read_text() for path in Path(told_folder(told)).rglob("*.py"))
    assert "import tacl" not in code  # it is loaded where there is none
    assert not list(Path(told_folder(told)).rglob("*.pkl"))


def told_folder(told: Any) -> str:
    return mlflow.artifacts.download_artifacts(told.model_uri)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_grey_pictures_are_read_as_the_base_reads_them(kind: str) -> None:
    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000).save(file, kind)
    assert exported._picture(file.getvalue()) == inputs._decode(file.getvalue())
    for raw in grey_of_32_bits().values():
        with pytest.raises(ValueError, match="8 or 16 bits"):
            exported._picture(raw)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadCheckpoint, match="tacl export"):
        log_model(tmp_path, "alice")
