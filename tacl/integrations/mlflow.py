"""Exported models in MLflow: logged to a run, and registered under a name."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import mlflow.pyfunc
from mlflow.models.model import ModelInfo
from mlflow.models.signature import ModelSignature
from mlflow.types import ColSpec, DataType, Schema

from tacl.errors import BadCheckpoint
from tacl.interchange.writing import HEADS

LIBRARIES = {  # by a file that the library's folders have: the library, and the type of a row
    "modules.json": ("transformers", ColSpec(DataType.string, "text")),
    "open_clip_config.json": ("open_clip_torch", ColSpec(DataType.binary, "image")),
    "config.json": ("timm", ColSpec(DataType.binary, "image")),
}
NEEDED = ("torch", "safetensors", "pandas")
ANSWER = Schema(
    [
        ColSpec(DataType.string, "task"),
        ColSpec(DataType.string, "label"),
        ColSpec(DataType.double, "probability"),
    ]
)


def log_model(folder: str | Path, name: str, *, registered: bool = False) -> ModelInfo:
    """Log a folder of `tacl export`, of format transformers, open_clip or timm, as a pyfunc.

    The model is logged to the active run of MLflow, or to a new one. Its rows are texts, or the
    bytes of pictures. With `registered`, it also becomes a new version of the registered model
    `name`. Raises BadCheckpoint for any other folder.
    """
    folder = Path(folder)
    there = [file for file in LIBRARIES if (folder / file).is_file()]
    if not there or not (folder / HEADS).is_file():
        raise BadCheckpoint(
            f"{folder} has no model that its library loads by itself; write one with "
            "`tacl export USER --out FOLDER --format transformers`, open_clip or timm"
        )
    library, row = LIBRARIES[there[0]]
    return mlflow.pyfunc.log_model(
        name=name,
        python_model=str(Path(__file__).with_name("exported.py")),
        artifacts={"model": str(folder)},
        signature=ModelSignature(Schema([row]), ANSWER),
        pip_requirements=[f"{one}=={version(one)}" for one in (*NEEDED, library)],
        registered_model_name=name if registered else None,
    )
