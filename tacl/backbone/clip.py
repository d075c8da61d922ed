"""Visual towers of open_clip, with their text tower for heads; also the embedded base model."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tacl.backbone import hub
from tacl.backbone.core import Backbone, present_blocks
from tacl.backbone.inputs import Images, interpolation
from tacl.spec import BaseSpec, is_path

TEMPLATES = ("a photo of a {}.",)
TRAINABLE = (  # everything but class and position embeddings
    "conv?.*",
    "ln_p*.*",
    "transformer.*",
    "proj",
    "bn?.*",  # residual networks from here
    "layer?.*",
    "attnpool.?_proj.*",
    "trunk.*",  # towers that timm provides
    "head.*",
)
RESIZES = ("shortest", "squash")


def load(spec: BaseSpec) -> Backbone:
    """Raises BaseNotFound when there is nothing to load, BadBase when it cannot be used."""
    return _backbone(spec, *whole_model(spec))


def load_embedded(spec: BaseSpec) -> Backbone:
    """The small encoder that is shipped with the package."""
    backbone = load(spec)
    if spec.size not in (None, backbone.inputs.description()["size"]):
        raise spec.unusable("the embedded base model has its own size; write `embedded`")
    return backbone


def whole_model(spec: BaseSpec) -> tuple[Any, Any]:
    """The library's model with both towers, and its tokenizer; raises what `load` does."""
    if spec.scheme == "embedded":
        from tacl.embedded import model

        return model.load()
    import open_clip

    with _access(spec) as where:
        return _create(spec, where), open_clip.get_tokenizer(_library_name(spec))


def _library_name(spec: BaseSpec) -> str:
    return f"local-dir:{spec.folder}" if spec.is_folder else spec.name


def _access(spec: BaseSpec) -> AbstractContextManager[str]:
    """Says where the model is looked up; checks names first, because that needs no network."""
    import open_clip

    directory, weights = spec.folder, spec.weights
    if spec.is_folder:
        if not (directory / "open_clip_config.json").is_file():
            raise spec.missing(f"the directory {directory} has no open_clip_config.json")
        if not any(directory.glob("*.safetensors")):
            raise spec.missing(f"the directory {directory} has no .safetensors weights")
        return nullcontext(f"the directory {directory}")
    if is_path(spec.name):
        raise spec.missing(f"there is no directory {directory.absolute()}")
    if spec.name not in open_clip.list_models():
        raise spec.missing(f"open_clip has no model {spec.name!r}; {_similar(spec.name)}")
    tags = open_clip.list_pretrained_tags_by_model(spec.name)
    if weights is None:
        raise spec.unusable(f"say which weights, @TAG or @FILE; tags: {', '.join(tags) or '-'}")
    if weights in tags:
        return hub.within_reach()
    file = Path(os.path.expanduser(weights))
    if os.path.isfile(file) and file.suffix != ".safetensors":
        raise spec.unusable(f"{file.name} is no .safetensors file; others may hold programs")
    if not os.path.isfile(file):
        raise spec.missing(
            f"{weights!r} is neither a file nor a tag of {spec.name}; "
            f"tags: {', '.join(tags) or '-'}"
        )
    return nullcontext(f"the file {weights}")


def _similar(name: str) -> str:
    import difflib

    import open_clip

    near = difflib.get_close_matches(name, open_clip.list_models(), n=3, cutoff=0.4)
    return f"did you mean {' or '.join(near)}?" if near else "see open_clip.list_models()"


def was_not_fetched(error: BaseException) -> bool:
    """Whether the error is a failed download; open_clip raises a RuntimeError in its own words."""
    return "download" in str(error).lower()


def _create(spec: BaseSpec, where: str) -> Any:
    import open_clip

    tag = open_clip.get_pretrained_cfg(spec.name, spec.weights) if spec.weights else {}
    off = logging.root.manager.disable
    # The errors below say what the library would log too.
    logging.disable(max(off, logging.ERROR))
    try:
        return open_clip.create_model(
            _library_name(spec),
            pretrained=os.path.expanduser(spec.weights) if spec.weights else None,
            force_quick_gelu=bool(tag.get("quick_gelu", False)),
            force_image_size=spec.size,
            pretrained_text=False,
        )
    except Exception as error:  # a download fails in many ways, and the library wraps most of them
        said = hub.first_line(error)
        if tag and was_not_fetched(error):
            advice = "put the weights into the cache, or give a file: @FILE.safetensors"
            raise spec.missing(f"looked in {where}: {said}; {advice}") from error
        raise spec.unusable(
            f"found in {where} and not usable as {spec.name}: {said}; "
            "give the weights of this architecture"
        ) from error
    finally:
        logging.disable(off)


def _is_quick(visual: nn.Module) -> bool:
    """Whether it has QuickGELU activations, which do not exist unless open_clip is imported."""
    layers = sys.modules.get("open_clip.transformer")
    return layers is not None and any(isinstance(m, layers.QuickGELU) for m in visual.modules())


def _backbone(spec: BaseSpec, model: Any, tokenizer: Any) -> Backbone:
    model = model.float().eval().requires_grad_(False)
    settings = model.visual.preprocess_cfg
    size = settings["size"]
    if not isinstance(size, int):
        if size[0] != size[1]:
            raise spec.unusable(f"images of {size} pixels; only square ones are supported")
        size = size[0]
    resize, how = settings.get("resize_mode", "shortest"), interpolation(spec, settings)
    if resize not in RESIZES:
        raise spec.unusable(f"images are resized as {resize}: that is not supported")
    look = tuple(settings["mean"]), tuple(settings["std"])
    inputs = Images(size, *look, squash=resize == "squash", interpolation=how)
    scale = model.logit_scale.exp().item()
    trainable = present_blocks(spec, model.visual, TRAINABLE)

    tower = partial(_encoded, model, tokenizer)
    variant = f"quick_gelu={_is_quick(model.visual)}"  # the same theta0 fits either
    return Backbone(spec, model.visual, inputs, trainable, scale, TEMPLATES, tower, variant)


def _encoded(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    device = model.logit_scale.device
    return model.encode_text(tokenizer(list(texts)).to(device))
