"""An exported model as a pyfunc that predicts the task and class of each row.

MLflow copies this file beside the model and runs it there, so it does not import TACL: a server
needs only the model's library, safetensors and pandas.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel
from safetensors import safe_open
from torch import Tensor

BATCH = 64  # rows in a pass: a whole frame may not fit into memory at once
Features = Callable[[Sequence[Any]], Tensor]  # of texts, or of pictures' bytes: [B, D]
POOLINGS = {  # of tokens [B, L, D] and their mask [B, L, 1], by the names of sentence-transformers
    "pooling_mode_mean_tokens": lambda tokens, mask: (tokens * mask).sum(1) / mask.sum(1),
    "pooling_mode_cls_token": lambda tokens, mask: tokens[:, 0],
    "pooling_mode_lasttoken": lambda tokens, mask: tokens[
        torch.arange(len(tokens)), mask[:, :, 0].sum(1) - 1
    ],
}


class ExportedModel(PythonModel):
    """`predict` takes a frame of one column, and returns task, label and probability."""

    def load_context(self, context: Any) -> None:
        folder = Path(context.artifacts["model"])
        self._features = _features(folder)
        with safe_open(folder / "heads.safetensors", "pt") as file:
            facts = file.metadata()
            heads, self._tasks = json.loads(facts["heads"]), json.loads(facts["answering"])
            self._weights = [
                heads[task]["scale"] * file.get_tensor(f"{task}.weight") for task in self._tasks
            ]
        self._columns = [(task, name) for task in self._tasks for name in heads[task]["classes"]]

    @torch.no_grad()
    def predict(self, context, model_input, params=None) -> pd.DataFrame:  # MLflow checks hints
        rows = model_input.iloc[:, 0].tolist()
        starts = range(0, len(rows), BATCH)
        answers = [one for start in starts for one in self._answers(rows[start : start + BATCH])]
        return pd.DataFrame(answers, columns=["task", "label", "probability"])

    def _answers(self, rows: Sequence[Any]) -> Iterator[tuple[str, str, float]]:
        unit = torch.nn.functional.normalize(self._features(rows), dim=-1)
        chances = torch.cat([unit @ weight.T for weight in self._weights], -1).softmax(-1)
        for chance, column in zip(*map(Tensor.tolist, chances.max(-1)), strict=True):
            yield *self._columns[column], chance


def _features(folder: Path) -> Features:
    if (folder / "modules.json").is_file():
        return _transformers(folder)
    return _open_clip(folder) if (folder / "open_clip_config.json").is_file() else _timm(folder)


def _transformers(folder: Path) -> Features:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "right"  # also for older folders, which do not say so
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    length = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    (pooled,) = (function for name, function in POOLINGS.items() if pooling.get(name))

    def features(rows: Sequence[Any]) -> Tensor:
        settings = {"padding": True, "truncation": True, "max_length": length}
        batch = tokenizer(list(rows), return_tensors="pt", **settings)
        mask = batch["attention_mask"].unsqueeze(-1)
        tokens = model.eval()(input_ids=batch["input_ids"], attention_mask=mask[:, :, 0])
        return pooled(tokens.last_hidden_state, mask)

    return features


def _open_clip(folder: Path) -> Features:
    import open_clip

    model, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    encode: Any = model.eval().encode_image
    return lambda rows: encode(_pictures(rows, prepare))


def _timm(folder: Path) -> Features:
    import timm
    import timm.data

    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    settings = timm.data.resolve_model_data_config(model)
    prepare = timm.data.create_transform(**settings, is_training=False)
    return lambda rows: model(_pictures(rows, prepare))


def _pictures(rows: Sequence[Any], prepare: Any) -> Tensor:
    return torch.stack([prepare(_picture(row)) for row in rows])


def _picture(row: bytes) -> Any:
    from PIL import Image

    image: Any = Image.open(io.BytesIO(row))
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise ValueError("a picture of 32-bit numbers; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")


set_model(ExportedModel())
