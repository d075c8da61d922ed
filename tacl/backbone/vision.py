"""Image encoders of timm; they have no text tower, so their heads are class prototypes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from tacl.backbone import hub
from tacl.backbone.core import Backbone
from tacl.backbone.inputs import Images, interpolation
from tacl.spec import BaseSpec

LOGIT_SCALE = 16.0
TRAINABLE = ("*",)


def load(spec: BaseSpec) -> Backbone:
    """Raises BaseNotFound when there is nothing to load, BadBase when it cannot be used."""
    import timm

    if not timm.is_model(spec.name):
        near = timm.list_models(f"*{spec.name.split('.')[0][-12:]}*")[:3]
        raise spec.missing(f"timm has no model {spec.name!r}; similar: {near or 'none'}")
    model = _with_file(spec, spec.weights) if spec.weights else _with_hub(spec)
    config = model.pretrained_cfg
    size = sized(spec, model, config["input_size"][-1])
    look = tuple(config["mean"]), tuple(config["std"])
    inputs = Images(size, *look, interpolation=interpolation(spec, config))
    return Backbone(spec, model, inputs, TRAINABLE, LOGIT_SCALE)


def classifiers(model: Any) -> tuple[str, ...]:
    """Names of the layers that give class logits, which an encoder lacks."""
    found = model.pretrained_cfg.get("classifier") or ()
    return (found,) if isinstance(found, str) else tuple(found)


def _with_file(spec: BaseSpec, weights: str) -> Any:
    import timm

    path = Path(os.path.expanduser(weights))
    if not os.path.isfile(path):
        raise spec.missing(f"there is no file {path.absolute()} with the weights")
    state = _state(spec, path)
    model: Any = timm.create_model(spec.name, pretrained=False, num_classes=0)
    heads = classifiers(model)
    state = {k: v for k, v in state.items() if k.rpartition(".")[0] not in heads}
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise spec.unusable(
            f"the weights in {path} are not of {spec.name}: {hub.first_line(error)}"
        ) from error
    return model


def _state(spec: BaseSpec, path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise spec.unusable(f"{path} is not a complete safetensors file: {error}") from error


def _with_hub(spec: BaseSpec) -> Any:
    import timm

    with hub.within_reach() as where:
        try:  # with the pre-trained number of classes the library checks every name
            model: Any = timm.create_model(spec.name, pretrained=True)
        except Exception as error:  # a download fails in many ways; all mean: unavailable
            advice = "give the weights as a file: @FILE.safetensors"
            raise spec.missing(f"looked in {where}: {hub.first_line(error)}; {advice}") from error
    model.reset_classifier(0)
    return model


def sized(spec: BaseSpec, model: Any, native: int) -> int:
    """Side of its images in pixels, as `spec` asks. Raises BadBase if the model cannot take it."""
    if spec.size is None or spec.size == native:
        return native
    if hasattr(model, "set_input_size"):  # transformers resample their position embeddings
        model.set_input_size(img_size=spec.size)
    elif model.pretrained_cfg.get("fixed_input_size"):
        raise spec.unusable(f"{spec.name} takes images of {native} pixels only")
    return spec.size
