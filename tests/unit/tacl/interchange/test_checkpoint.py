"""Models for other libraries, loaded by those libraries; their checkpoints as vectors."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from tacl.backbone import Backbone, load_backbone
from tacl.compose.materialized import materialized, materialized_features
from tacl.errors import BadCheckpoint, BadConfig, BaseMismatch
from tacl.heads.head import Head
from tacl.interchange.checkpoint import ImportedVector, vector_of_checkpoint
from tacl.interchange.names import library_name
from tacl.interchange.writing import HEADS, OF_SCHEME, write_heads, write_model
from tacl.models.frozen import trainable_blocks
from tacl.vectors.params import Params
from tests.support import bases, tiny

SCHEMES = ("hf", "open_clip", "embedded", "timm", "statistics")
TEXTS = ["the cat sat on the mat", "a dog", "what is in a name"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Backbone]:
    """A base of each library; `statistics` is a timm network with batch normalisation."""
    kept: dict[str, Backbone] = {}

    def load(scheme: str) -> Backbone:
        if scheme not in kept:
            kept[scheme] = load_backbone(spec(scheme, tmp_path_factory.mktemp(scheme)))
        return kept[scheme]

    return load


def spec(scheme: str, folder: Path) -> str:
    if scheme == "hf":
        return f"hf:{bases.bert(folder)}?size=32"
    if scheme == "open_clip":
        return f"open_clip:{bases.clip(folder)}"
    if scheme == "timm":
        return tiny.base(folder)
    return f"timm:test_efficientnet@{lite(folder)}?size=32" if scheme == "statistics" else scheme


def lite(folder: Path) -> Path:
    import timm

    torch.manual_seed(0)
    model = timm.create_model("test_efficientnet")
    save_file(model.state_dict(), folder / "lite.safetensors")
    return folder / "lite.safetensors"


def some_tau(backbone: Backbone, seed: int = 0) -> Params:
    """Half of theta0's size, on the blocks that vectors have."""
    torch.manual_seed(seed)
    theta0 = dict(backbone.encoder.named_parameters())
    names = trainable_blocks(backbone.encoder, backbone.trainable)
    return {n: torch.randn_like(theta0[n]) * (0.5 * theta0[n].std() + 0.001) for n in names}


def inputs(backbone: Backbone) -> list[Any]:
    return TEXTS if backbone.modality == "text" else tiny.pictures(3)[0]


def expected(backbone: Backbone, tau: Params) -> Tensor:
    items = [backbone.prepare(raw) for raw in inputs(backbone)]
    return materialized_features(backbone, materialized(backbone.encoder, tau), items)


# -- the materialized model


def test_materialized_is_the_encoder_with_moved_weights(loaded: Callable[[str], Backbone]) -> None:
    import copy

    backbone = loaded("timm")
    tau = some_tau(backbone)
    moved = copy.deepcopy(backbone.encoder)
    with torch.no_grad():
        for name, parameter in moved.named_parameters():
            parameter.add_(tau[name])
        batch = backbone.collate([backbone.prepare(raw) for raw in inputs(backbone)])
        torch.testing.assert_close(expected(backbone, tau), moved(batch))
    assert load_backbone(str(backbone.spec)).digest == backbone.digest  # and theta0 stayed
    with pytest.raises(ValueError, match="no tensor"):
        materialized(backbone.encoder, {"blocks.9": torch.zeros(1)})


# -- to other libraries


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_library_loads_what_is_written(
    loaded: Callable[[str], Backbone], scheme: str, tmp_path: Path
) -> None:
    backbone = loaded(scheme)
    tau = some_tau(backbone)
    write_model(backbone, tau, OF_SCHEME[backbone.spec.scheme], tmp_path)
    features = {"hf": by_transformers, "timm": by_timm}.get(backbone.spec.scheme, by_open_clip)
    answer = features(tmp_path, inputs(backbone))
    torch.testing.assert_close(answer, expected(backbone, tau), rtol=1e-4, atol=1e-4)
    before = materialized_features(
        backbone,
        materialized(backbone.encoder, {}),
        [backbone.prepare(raw) for raw in inputs(backbone)],
    )
    assert (answer - before).abs().max() > 1e-3  # it is not the base that was written


@torch.no_grad()
def by_transformers(folder: Path, texts: list[str]) -> Tensor:
    from transformers import AutoModel, AutoTokenizer

    model: Any = AutoModel.from_pretrained(folder).eval()
    words = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    tokens = model(input_ids=words["input_ids"], attention_mask=words["attention_mask"])
    mask = words["attention_mask"].unsqueeze(-1)
    return (tokens.last_hidden_state * mask).sum(1) / mask.sum(1)


@torch.no_grad()
def by_open_clip(folder: Path, pictures: list[bytes]) -> Tensor:
    import open_clip

    created: Any = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    model, _, preprocess = created
    model.eval()
    assert open_clip.get_tokenizer(f"local-dir:{folder}") is not None
    return model.encode_image(torch.stack([preprocess(opened(raw)) for raw in pictures]))


@torch.no_grad()
def by_timm(folder: Path, pictures: list[bytes]) -> Tensor:
    import timm
    from timm.data import create_transform, resolve_model_data_config

    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    transform: Any = create_transform(**resolve_model_data_config(model), is_training=False)
    return model(torch.stack([transform(opened(raw)) for raw in pictures]))


def opened(raw: bytes) -> Any:
    import io

    from PIL import Image

    return Image.open(io.BytesIO(raw)).convert("RGB")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_plain_tensors_have_the_librarys_names(
    loaded: Callable[[str], Backbone], scheme: str, tmp_path: Path
) -> None:
    backbone = loaded(scheme)
    tau = some_tau(backbone)
    write_model(backbone, tau, "safetensors", tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    for name, value in materialized(backbone.encoder, tau).items():
        assert torch.equal(written[library_name(backbone.spec.scheme, name)], value)
    if scheme in ("open_clip", "embedded"):  # the text tower is there, as it was
        assert "token_embedding.weight" in written
        assert "visual.proj" in written or "visual.attnpool.c_proj.weight" in written


def test_the_text_tower_stays(loaded: Callable[[str], Backbone], tmp_path: Path) -> None:
    """So that zero-shot heads of the written model are those of the base."""
    import open_clip

    backbone = loaded("open_clip")
    write_model(backbone, some_tau(backbone), "open_clip", tmp_path)
    model: Any = open_clip.create_model(f"local-dir:{tmp_path}").eval()
    words = open_clip.get_tokenizer(f"local-dir:{tmp_path}")(TEXTS)
    with torch.no_grad():
        torch.testing.assert_close(model.encode_text(words), backbone.encode_texts(TEXTS))


def test_formats_of_other_libraries_are_refused(
    loaded: Callable[[str], Backbone], tmp_path: Path
) -> None:
    backbone = loaded("timm")
    with pytest.raises(BadConfig, match="safetensors or timm"):
        write_model(backbone, {}, "transformers", tmp_path)
    assert not list(tmp_path.iterdir())


def test_heads_beside_the_model(tmp_path: Path) -> None:
    head = Head(torch.eye(2, 3), 16.0, ("ash", "birch"))
    write_heads({"trees": head}, tmp_path)
    with safe_open(tmp_path / HEADS, framework="pt") as file:
        about = json.loads(file.metadata()["heads"])
        assert torch.equal(file.get_tensor("trees.weight"), head.weight_CD)
    assert about == {"trees": {"classes": ["ash", "birch"], "scale": 16.0}}


# -- from other libraries


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_written_is_read_again(
    loaded: Callable[[str], Backbone], scheme: str, tmp_path: Path
) -> None:
    """theta - theta0 of the written theta0 + tau; bit for bit theta again."""
    backbone = loaded(scheme)
    tau = some_tau(backbone)
    write_model(backbone, tau, OF_SCHEME[backbone.spec.scheme], tmp_path)
    vector = vector_of_checkpoint("x", backbone, tmp_path).vector
    assert (vector.task, vector.base, vector.regime) == ("x", backbone.digest, "ordinary")
    assert vector.blocks.keys() == tau.keys()
    for name, value in vector.to_params().items():
        torch.testing.assert_close(value, tau[name], rtol=1e-3, atol=1e-6)


def test_statistics_are_part_of_the_change(
    loaded: Callable[[str], Backbone], tmp_path: Path
) -> None:
    """A network fine-tuned in train mode has other running means; they are told, not lost."""
    backbone = loaded("statistics")
    theta = materialized(backbone.encoder, {})
    theta["bn1.running_mean"] = theta["bn1.running_mean"] + 1.0
    theta["bn1.num_batches_tracked"] = theta["bn1.num_batches_tracked"] + 7
    save_file(theta, tmp_path / "theta.safetensors")
    vector = vector_of_checkpoint("x", backbone, tmp_path / "theta.safetensors").vector
    assert list(vector.blocks) == ["bn1.running_mean"]


Change = Callable[[Params], Params]


def changed(backbone: Backbone, seed: int = 0) -> Params:
    """The library's tensors of a fine-tuned model, with its own names."""
    theta = materialized(backbone.encoder, some_tau(backbone, seed))
    return {library_name(backbone.spec.scheme, name): v for name, v in theta.items()}


ACCEPTED: dict[str, tuple[str, Change, tuple[str, ...]]] = {
    "a classifier beside it": (
        "timm",
        lambda t: {**t, "head.weight": torch.ones(3, 64), "head.bias": torch.ones(3)},
        ("head.bias", "head.weight"),
    ),
    "below a task's model": (
        "hf",
        lambda t: {
            **{f"bert.{k}": v for k, v in t.items()},
            "classifier.weight": torch.ones(3, 16),
        },
        ("classifier.weight",),
    ),
    "with a pooler": (
        "hf",
        lambda t: {**t, "pooler.dense.weight": torch.ones(16, 16)},
        ("pooler.dense.weight",),
    ),
    "the visual tower alone": (
        "open_clip",
        lambda t: {k.removeprefix("visual."): v for k, v in t.items()},
        (),
    ),
    "with a text tower": (
        "open_clip",
        lambda t: {**t, "text_projection": torch.ones(16, 12)},
        ("text_projection",),
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
@pytest.mark.parametrize("file", ["model.safetensors", "model.pt", "nested.pth", "module.ckpt"])
def test_ways_in_which_checkpoints_are_saved(
    loaded: Callable[[str], Backbone], case: str, file: str, tmp_path: Path
) -> None:
    scheme, change, aside = ACCEPTED[case]
    backbone = loaded(scheme)
    tensors = change(changed(backbone))
    path = tmp_path / file
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    elif file == "module.ckpt":
        torch.save({f"module.{key}": value for key, value in tensors.items()}, path)
    else:
        torch.save({"state_dict": tensors, "epoch": 3} if "nested" in file else tensors, path)
    found = vector_of_checkpoint("x", backbone, path)
    is_the_change(backbone, found)
    assert tuple(key.removeprefix("module.") for key in found.aside) == aside


def is_the_change(backbone: Backbone, found: ImportedVector, seed: int = 0) -> None:
    tau = some_tau(backbone, seed)
    assert found.vector.blocks.keys() == tau.keys()
    for name, value in found.vector.to_params().items():
        torch.testing.assert_close(value, tau[name], rtol=1e-3, atol=1e-6)


def test_shards_of_one_checkpoint(loaded: Callable[[str], Backbone], tmp_path: Path) -> None:
    backbone = loaded("hf")
    tensors = list(changed(backbone).items())
    parts = {"one.safetensors": dict(tensors[:9]), "two.safetensors": dict(tensors[9:])}
    for name, part in parts.items():
        save_file(part, tmp_path / name)
    places = {key: name for name, part in parts.items() for key in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    is_the_change(backbone, vector_of_checkpoint("x", backbone, tmp_path))
    save_file(changed(backbone, 1), tmp_path / "model.safetensors")
    is_the_change(backbone, vector_of_checkpoint("x", backbone, tmp_path), 1)  # as transformers
    (tmp_path / "model.safetensors").unlink()
    places[next(iter(places))] = "../elsewhere.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(BadCheckpoint, match="other directories"):
        vector_of_checkpoint("x", backbone, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[" * 100_000)
    with pytest.raises(BadCheckpoint, match="no index of weights"):
        vector_of_checkpoint("x", backbone, tmp_path)
    itself = dict.fromkeys(places, "model.safetensors.index.json")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": itself}))
    with pytest.raises(BadCheckpoint, match="not a complete safetensors"):
        vector_of_checkpoint("x", backbone, tmp_path)


def test_half_precision_changes_only_what_was_trained(
    loaded: Callable[[str], Backbone], tmp_path: Path
) -> None:
    """Rounding theta0 to 16 bits is no training."""
    backbone = loaded("timm")
    theta = materialized(backbone.encoder, {})
    theta["blocks.0.attn.proj.weight"] = theta["blocks.0.attn.proj.weight"] + 0.01
    save_file({name: v.half() for name, v in theta.items()}, tmp_path / "half.safetensors")
    vector = vector_of_checkpoint("x", backbone, tmp_path / "half.safetensors").vector
    assert list(vector.blocks) == ["blocks.0.attn.proj.weight"]
    torch.testing.assert_close(
        vector.to_params()["blocks.0.attn.proj.weight"],
        torch.full((64, 64), 0.01),
        atol=2e-3,
        rtol=0,
    )


def without(name: str) -> Change:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def with_(name: str, value: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors: {**tensors, name: value(tensors[name])}


NORM = "norm.weight"
REFUSED: dict[str, tuple[Change, type[Exception], str]] = {
    "missing": (without(NORM), BadCheckpoint, "lacks 1 of .*norm.weight"),
    "unexpected": (
        lambda t: {**t, "blocks.9.norm1.weight": torch.ones(64)},
        BadCheckpoint,
        "1 of .* unknown .*blocks.9.norm1.weight",
    ),
    "mis-shaped": (with_(NORM, lambda v: v[:5]), BadCheckpoint, r"norm.weight has shape \[5\]"),
    "not finite": (with_(NORM, lambda v: v / 0), BadCheckpoint, "norm.weight holds infinities"),
    "finite in 64 bits": (
        with_(NORM, lambda v: torch.full_like(v, 1e300, dtype=torch.float64)),
        BadCheckpoint,
        "what float32 cannot hold",
    ),
    "complex": (
        with_(NORM, lambda v: torch.full_like(v, torch.nan, dtype=torch.complex64)),
        BadCheckpoint,
        "norm.weight holds complex64",
    ),
    "codes without scales": (
        lambda t: {k: (v * 100).to(torch.int8) for k, v in t.items()},
        BadCheckpoint,
        "holds int8; give .* dequantised",
    ),
    "half bytes": (
        with_(NORM, lambda v: v.to(torch.uint8).repeat(2).view(torch.float4_e2m1fn_x2)[:64]),
        BadCheckpoint,
        "norm.weight holds float4",
    ),
    "another network": (lambda t: {"conv.weight": torch.ones(3)}, BadCheckpoint, "unknown"),
    "empty": (lambda t: {}, BadCheckpoint, "lacks"),
    "another origin": (
        lambda t: {k: torch.randn_like(v) if v.ndim > 1 else v for k, v in t.items()},
        BaseMismatch,
        "cosine with the base is -?0.0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_checkpoints_that_do_not_fit_are_refused(
    loaded: Callable[[str], Backbone], case: str, tmp_path: Path
) -> None:
    change, error, message = REFUSED[case]
    backbone = loaded("timm")
    save_file(change(changed(backbone)), tmp_path / "model.safetensors")
    with pytest.raises(error, match=message):
        vector_of_checkpoint("x", backbone, tmp_path)


def test_a_place_where_nothing_is_may_be_meant_of_a_hub(
    loaded: Callable[[str], Backbone], tmp_path: Path
) -> None:
    with pytest.raises(BadCheckpoint, match="no checkpoint at .*/acme/trec"):
        vector_of_checkpoint("x", loaded("timm"), tmp_path / "acme/trec")


def test_the_base_itself_is_no_task(loaded: Callable[[str], Backbone], tmp_path: Path) -> None:
    backbone = loaded("timm")
    save_file(materialized(backbone.encoder, {}), tmp_path / "model.safetensors")
    with pytest.raises(BadCheckpoint, match="unchanged"):
        vector_of_checkpoint("x", backbone, tmp_path)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("was-run"),))


def test_no_file_is_run(
    loaded: Callable[[str], Backbone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backbone = loaded("timm")
    torch.save({**changed(backbone), "x": Evil()}, "evil.pt")
    Path("evil.bin").write_bytes(pickle.dumps(Evil()))
    Path("evil.pkl").write_bytes(pickle.dumps(Evil()))
    for name in ("evil.pt", "evil.bin", "evil.pkl"):
        with pytest.raises(
            BadCheckpoint, match=r"more than tensors|no checkpoint that can be read"
        ):
            vector_of_checkpoint("x", backbone, Path(name))
    assert not Path("was-run").exists()
