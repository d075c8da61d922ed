"""Writes a model theta0 + tau in files that its library loads by itself, and heads beside it.

safetensors    model.safetensors: the library's names, no configuration
open_clip      open_clip.create_model("local-dir:DIR")
transformers   transformers.AutoModel.from_pretrained("DIR")
timm           timm.create_model("local-dir:DIR", pretrained=True)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tacl.backbone import Backbone, BaseSpec, clip, hf
from tacl.compose.materialized import materialized
from tacl.errors import BadConfig
from tacl.heads.head import Head
from tacl.interchange.formats import Format
from tacl.interchange.names import library_name
from tacl.vectors.params import Params

OF_SCHEME: dict[str, Format] = {
    "hf": "transformers",
    "open_clip": "open_clip",
    "embedded": "open_clip",
    "timm": "timm",
}
HEADS = "heads.safetensors"


def require_writable(spec: BaseSpec, format: str) -> None:
    """Raises BadConfig when a model of this base cannot be written in this format."""
    possible = ("safetensors", OF_SCHEME[spec.scheme])
    if format not in possible:
        raise BadConfig(
            f"format {format} was asked for, and the base is {spec}; its models can be written as "
            f"{' or '.join(possible)}"
        )


def write_model(backbone: Backbone, tau: Params, format: Format, folder: Path) -> None:
    """Writes the library's files into an empty folder. Raises BadConfig (`require_writable`)."""
    require_writable(backbone.spec, format)
    theta = materialized(backbone.encoder, tau)
    renamed = {library_name(backbone.spec.scheme, name): value for name, value in theta.items()}
    writers: dict[Format, Callable[[Backbone, Params, Path], None]] = {
        "safetensors": _write_tensors,
        "open_clip": _write_open_clip,
        "transformers": _write_transformers,
        "timm": _write_timm,
    }
    writers[format](backbone, renamed, folder)


def write_heads(
    heads: Mapping[str, Head], folder: Path, answering: Sequence[str] | None = None
) -> None:
    """Writes `TASK.weight` [C, D] of every task; the file's metadata has classes and scales, and
    the tasks `answering`, which an input may be of: all if None."""
    weights = {f"{task}.weight": head.weight_CD.contiguous() for task, head in heads.items()}
    about = {t: {"classes": list(h.classes), "scale": h.scale} for t, h in heads.items()}
    metadata = {"heads": json.dumps(about, sort_keys=True)}
    metadata["answering"] = json.dumps(list(heads if answering is None else answering))
    save_file(weights, folder / HEADS, metadata=metadata)


def _write_tensors(backbone: Backbone, theta: Params, folder: Path) -> None:
    """Writes also the tensors of the library's model outside the encoder, such as a text tower."""
    spec = backbone.spec
    if spec.scheme != "timm":
        model = (hf if spec.scheme == "hf" else clip).whole_model(spec)[0]
        theta = {**model.state_dict(), **theta}
    _save(theta, folder / "model.safetensors")


def _save(tensors: Params, path: Path) -> None:
    save_file({n: v.cpu().contiguous() for n, v in tensors.items()}, path, {"format": "pt"})


def _write_transformers(backbone: Backbone, theta: Params, folder: Path) -> None:
    """Writes the model, and the pooling in the files that sentence-transformers reads."""
    model, tokenizer, pooling = hf.whole_model(backbone.spec)
    model.load_state_dict({**model.state_dict(), **theta})
    # Saving imports DeepSpeed if installed, which would otherwise warn about guessing this.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    model.save_pretrained(folder)
    # Poolings count from the left. Only what is in init_kwargs is saved.
    tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = "right"
    if tokenizer.pad_token is None:  # as in many decoders; masked, so any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.save_pretrained(folder)
    settings: dict[str, Any] = {"word_embedding_dimension": model.config.hidden_size}
    settings |= {f"pooling_mode_{key}": mode == pooling for mode, key in hf.POOLINGS.items()}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings, indent=2))
    path = "sentence_transformers.models."
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{path}Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{path}Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2))
    length = {"max_seq_length": backbone.inputs.description()["size"], "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(length, indent=2))


def _write_open_clip(backbone: Backbone, theta: Params, folder: Path) -> None:
    model, tokenizer = clip.whole_model(backbone.spec)
    _save({**model.state_dict(), **theta}, folder / "open_clip_model.safetensors")
    config = _clip_config(backbone.spec)
    config["vision_cfg"]["image_size"] = backbone.inputs.description()["size"]
    if "quick_gelu=True" in backbone.variant:
        config["quick_gelu"] = True
    about = {"model_cfg": config, "preprocess_cfg": model.visual.preprocess_cfg}
    (folder / "open_clip_config.json").write_text(json.dumps(about, indent=2))
    if hasattr(tokenizer, "save_pretrained"):
        tokenizer.save_pretrained(folder)


def _clip_config(spec: BaseSpec) -> dict[str, Any]:
    import open_clip

    if spec.scheme == "embedded":
        from tacl.embedded import model

        return model.config()
    if spec.is_folder:
        return json.loads((spec.folder / "open_clip_config.json").read_text())["model_cfg"]
    config = open_clip.get_model_config(spec.name)
    assert config is not None  # it was loaded by this name
    return config


def _write_timm(backbone: Backbone, theta: Params, folder: Path) -> None:
    from timm.models import save_for_hf

    inputs = backbone.inputs.description()
    size = int(inputs["size"])
    data = {"input_size": (3, size, size), "interpolation": inputs["resize"], "crop_pct": 1.0}
    data |= {"mean": inputs["mean"], "std": inputs["std"], "crop_mode": "center"}
    model: Any = backbone.encoder
    save_for_hf(model, str(folder), safe_serialization=True, data_config=data)
    _save(theta, folder / "model.safetensors")  # in place of theta0
