"""What runs on an accelerator, tried without one: on the `meta` device, with tensors that have a
form and no values. A tensor that stays on the CPU is an error there as on a GPU.

What a path reads of the device makes it wait; how often, and in which dtype products are taken, is
counted on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tacl.backbone import Backbone, BaseSpec, Item
from tacl.backbone.hf import SentenceEncoder
from tacl.backbone.inputs import Images, Texts
from tacl.compose.adamerging import adamerging
from tacl.compose.arithmetic import composed
from tacl.compose.learning import learn, learning_config, loss_gradient
from tacl.compose.materialized import materialized, materialized_features
from tacl.compose.merges import iso_c, magmax, ties, tsv_m
from tacl.compose.scaled import ScaledEncoder
from tacl.curvature import Statistics, measure
from tacl.data.batches import Labelled
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.head import Head
from tacl.models.linearized import LinearizedEncoder
from tacl.models.mixed import MultiRecipeEncoder
from tacl.models.ordinary import OrdinaryEncoder
from tacl.models.sums import Sums
from tacl.training.config import Penalty, RefreshConfig, TrainConfig
from tacl.training.loop import PlainEngine, Store, train
from tacl.training.refresh import refresh
from tacl.vectors.blocks import Dense
from tacl.vectors.vector import TaskVector
from tests.support.budget import some

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "matmul", "linear"}
COPIES = {"copy_", "_to_copy"}
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal"}
DEVICE = torch.device("meta")


class Watched(TorchDispatchMode):
    """Notes what waits for the device, what computes between devices, and products by (device,
    dtype); a value that is read is made up."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.between: Counter[str] = Counter()
        self.products: Counter[tuple[str, torch.dtype]] = Counter()
        self._read: Tensor | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.name().removeprefix("aten::").partition(".")[0]
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        places = {tensor.device.type for tensor in given}
        to_cpu = torch.device(kwargs.get("device") or "meta").type == "cpu"
        if "meta" in places and (name in READS or (name == "_to_copy" and to_cpu)):
            self.reads[name] += not self._reads_on(given[0])
        if name not in COPIES and len({x.device.type for x in given if x.ndim}) > 1:
            self.between[name] += 1
        if name in PRODUCTS:
            self.products.update((x.device.type, x.dtype) for x in given)
        if name == "_local_scalar_dense":
            return _made_up(given[0])
        return func(*args, **kwargs)

    def _reads_on(self, x: Tensor) -> bool:
        """A list of numbers is read from one tensor, number by number."""
        last, self._read = self._read, x
        return last is not None and last.untyped_storage()._cdata == x.untyped_storage()._cdata


def _made_up(x: Tensor) -> float | int | bool:
    if x.dtype == torch.bool:
        return True
    return 0.5 if x.is_floating_point() else 1


@contextmanager
def watched() -> Iterator[Watched]:
    with FakeTensorMode(allow_non_fake_inputs=True), Watched() as seen:
        yield seen
    assert not seen.between, f"between devices: {seen.between}"
    assert {place for place, _ in seen.products} <= {"meta"}, seen.products


# -- two encoders whose parameters are on the device, and rows, which are on the CPU

ROWS = 16
HEAD = Head(torch.ones(2, 64), 16.0, ("a", "b"))
PATTERNS = ("blocks.*", "model.encoder.*")


class NoTokenizer:
    pad_token_id = 0

    def get_vocab(self) -> dict[str, int]:
        return {}

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [1, 2]}


def pictures() -> tuple[Backbone, list[Item]]:
    import timm

    encoder = timm.create_model("test_vit", num_classes=0, img_size=32, depth=1)
    inputs = Images(32, (0.5,) * 3, (0.5,) * 3)
    base = Backbone(BaseSpec("timm", "vit"), encoder, inputs, PATTERNS[:1], 16.0)
    return base, list(torch.zeros(ROWS, 3, 32, 32, dtype=torch.uint8))


def texts() -> tuple[Backbone, list[Item]]:
    from transformers import BertConfig, BertModel

    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=9, num_hidden_layers=1, **sizes), False)
    inputs = Texts(NoTokenizer(), 8)
    encoder = SentenceEncoder(model, "mean")
    base = Backbone(BaseSpec("hf", "bert"), encoder, inputs, PATTERNS[1:], 16.0)
    return base, [torch.ones(3 + row % 4, dtype=torch.long) for row in range(ROWS)]


@pytest.fixture(params=[pictures, texts], ids=lambda make: make.__name__)
def scene(request: pytest.FixtureRequest) -> tuple[Backbone, list[Item]]:
    base, items = request.param()
    base.encoder.to(DEVICE)
    return base, items


def labelled(items: list[Item]) -> Labelled:
    return Labelled(items, torch.arange(len(items)) % 2)


def vectors(base: Backbone, count: int = 3, place: str = "cpu") -> list[TaskVector]:
    """As they are mapped from files; the last lacks a block. Nothing is read of their names."""
    blocks = dict(LinearizedEncoder(base.encoder, base.trainable).tau_by_block())
    found = []
    for number in range(count):
        if number == 2:
            blocks.popitem()
        kept = {n: Dense(torch.zeros(value.shape, device=place)) for n, value in blocks.items()}
        vector = TaskVector(f"task{number}", base.digest, "linearized", kept)
        object.__setattr__(vector, "digest", f"digest {number}")  # else it reads what it holds
        found.append(vector)
    return found


def statistics(base: Backbone, items: list[Item]) -> Statistics:
    return replace(measure(base, items, rows=1), feature_norm=1.0, coherence=1.0)


CONFIG = TrainConfig(
    steps=2, learning_rate=0.1, strength=1.0, seed=0, trainable=("*",), accumulation=2
)


# -- training


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pass_takes_its_products_as_asked(
    scene: tuple[Backbone, list[Item]], dtype: torch.dtype
) -> None:
    base, items = scene
    with watched() as seen:
        module = LinearizedEncoder(base.encoder, base.trainable, dtype)
        features_BD, tangent_BD = module(base.collate(items))
        (features_BD + tangent_BD).square().sum().backward()
        gradients = [p.grad for p in module.parameters()]
    assert features_BD.dtype == tangent_BD.dtype == torch.float32
    assert all(g is not None and (g.device, g.dtype) == (DEVICE, torch.float32) for g in gradients)
    assert seen.products.keys() == {("meta", dtype)}
    assert not seen.reads


@pytest.mark.parametrize(
    ("penalty", "precision"),
    some(
        [
            *((one, "float32") for one in ("cyclical", "mixed", "strict", "curvature", "none")),
            *((one, "bfloat16") for one in ("cyclical", "curvature")),
        ]
    ),
)
def test_a_training_step_waits_once(
    scene: tuple[Backbone, list[Item]], penalty: Penalty, precision: Any
) -> None:
    base, items = scene
    dtype = torch.bfloat16 if precision == "bfloat16" else None
    config = replace(CONFIG, penalty=penalty, precision=precision)
    told = []
    with watched() as seen:
        known = statistics(base, items) if penalty == "curvature" else None
        stores = [Store(name, items, 2.0, known) for name in "bc"]
        engine = PlainEngine(LinearizedEncoder(base.encoder, base.trainable, dtype), config)
        seen.reads.clear()
        train(engine, base, HEAD, labelled(items), lambda _: stores, config, on_step=told.append)
    assert [record.step for record in told] == [0, 1]
    assert sum(seen.reads.values()) == config.steps, seen.reads
    states = [value for state in engine.optimizer.state.values() for value in state.values()]
    assert {x.device.type for x in states if x.ndim} == {"meta"}


def test_a_step_against_statistics_and_an_ordinary_step_wait_once(
    scene: tuple[Backbone, list[Item]],
) -> None:
    base, items = scene
    with watched() as seen:
        stores = [Store("b", [], 1.0, statistics(base, items)), Store("c", items, 1.0)]
        modules = LinearizedEncoder, OrdinaryEncoder
        for kind, penalty in zip(modules, ("strict", "none"), strict=True):
            config = replace(CONFIG, penalty=penalty)
            engine = PlainEngine(kind(base.encoder, base.trainable), config)
            seen.reads.clear()
            train(engine, base, HEAD, labelled(items), lambda _: stores, config)
            assert sum(seen.reads.values()) == config.steps, seen.reads


def test_a_refresh_waits_once_a_step(scene: tuple[Backbone, list[Item]]) -> None:
    base, items = scene
    counts = []
    with watched() as seen:
        module = LinearizedEncoder(base.encoder, base.trainable)
        own, *others = [Store(name, items, 1.0) for name in "abc"]
        config = RefreshConfig(seed=0, steps=3, samples=20)
        told = lambda *_: counts.append(sum(seen.reads.values()))  # noqa: E731
        found = refresh(module, base, module.tau_dict(), own, others, config, told)
    assert [after - before for before, after in pairwise(counts)] == [1, 1]
    assert {value.device.type for value in found.tau.values()} == {"meta"}


def test_measuring_statistics_waits_at_the_end(scene: tuple[Backbone, list[Item]]) -> None:
    base, items = scene
    waits = []
    with watched() as seen:
        for rows in (1, 3):
            seen.reads.clear()
            found = measure(base, items, rows=rows)
            waits.append(sum(seen.reads.values()))
    assert waits[0] == waits[1]
    kept = [*found.diagonal.values(), *(x for one in found.layers for x in (one.a_II, one.b_OO))]
    assert kept
    assert {value.device.type for value in kept} == {"meta"}


# -- what is made of vectors


def test_learning_coefficients_waits_twice_a_step(scene: tuple[Backbone, list[Item]]) -> None:
    """For the coefficients of all blocks, then for the loss."""
    base, items = scene
    data = labelled(items)
    with watched() as seen:
        module = ScaledEncoder(base, vectors(base), [1.0, 0.5, 1.0], dtype=torch.bfloat16)
        config = replace(learning_config("few-shot", len(data), 0), steps=3)
        seen.reads.clear()
        learned = learn(module, base, HEAD, data, config)
        assert seen.reads.pop("_to_copy") == 1  # the coefficients that come out
        assert sum(seen.reads.values()) == 2 * config.steps, seen.reads
        loss_gradient(module, base, HEAD, data)
        module.keep(torch.ones(3, len(module.blocks)))
        (found,) = module.features(base, [items])
        adamerging(base, vectors(base), [items] * 3, [HEAD] * 3, steps=2)
    assert learned.coefficients.device.type == found.device.type == "cpu"
    assert found.dtype == torch.float32


@pytest.mark.parametrize("merge", [composed, ties, magmax, tsv_m, iso_c])
def test_a_merge_stays_where_its_vectors_are(merge: Any) -> None:
    base, _ = pictures()
    with watched() as seen:
        merged = merge(vectors(base, place="meta"), [1.0, -0.5, 2.0])
    assert {(value.device, value.dtype) for value in merged.values()} == {(DEVICE, torch.float32)}
    assert sum(seen.reads.values()) <= 3  # the thresholds of vectors


# -- answering and evaluating


@pytest.mark.parametrize("worth", [0, 1 << 40], ids=["mixed first", "products first"])
def test_a_batch_of_several_users_waits_for_nothing(
    scene: tuple[Backbone, list[Item]], worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, items = scene
    monkeypatch.setattr("tacl.dual.mixed.WORTH_MIXING", worth)
    with watched() as seen:
        taus = {v.task: v.to_params() for v in vectors(base, place="meta")}
        by_block = dict.fromkeys(taus["task0"], 0.5)
        users = [({"task0": 1.0}, 2), ({"task1": -0.5, "task2": by_block}, 5), ({}, 1)]
        answered = MultiRecipeEncoder(base.encoder, base.trainable, taus)
        features_BD = answered(base.collate(items[:8]), users)
        alone_BD = answered(base.collate(items[:8]), [({"task0": 0.5, "task2": 1.0}, 8)])
    assert features_BD.shape == alone_BD.shape == (8, 64)
    assert features_BD.device == alone_BD.device == DEVICE
    assert not seen.reads


def test_cached_tangents_wait_at_the_end(scene: tuple[Backbone, list[Item]]) -> None:
    """For each batch there is one copy to the CPU, after the last of them was begun."""
    base, items = scene
    order = []

    class Noted(LinearizedEncoder):
        def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
            order.append(sum(seen.reads.values()))
            return super().forward(batch)

    with watched() as seen:
        module = Noted(base.encoder, base.trainable)
        taus = {v.task: v.to_params() for v in vectors(base, 1)}
        cached = cached_tangents(module, base, items, taus, batch=8)
        Sums(module, base, [*taus], taus.__getitem__).rows("task0", items[:3])
        theta = materialized(base.encoder, taus["task0"])
        plain = materialized_features(base, theta, items)
    assert order[:2] == [0, 0]
    found = (cached.features_ND, cached.tangents["task0"], plain)
    assert {(value.device.type, value.dtype) for value in found} == {("cpu", torch.float32)}


# -- where the module is


def test_the_encoder_goes_where_its_module_goes() -> None:
    base, items = pictures()
    module = LinearizedEncoder(base.encoder, base.trainable).to(DEVICE)
    assert base.device == DEVICE
    shared = dict(base.encoder.named_parameters())
    assert all(module.theta0(name).data_ptr() == shared[name].data_ptr() for name in shared)
    with watched():
        assert module(base.collate(items))[0].device == DEVICE


def test_a_pass_inside_autocast_is_refused() -> None:
    base, items = pictures()
    module = LinearizedEncoder(base.encoder, base.trainable)
    batch = base.collate(items[:2])
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match=r"autocast is on for cpu.*dtype=torch.bfloat16"):
            module(batch)
        with pytest.raises(ValueError, match="autocast"):
            MultiRecipeEncoder(base.encoder, base.trainable, {})(batch, [({}, 1), ({}, 1)])


class Counting(nn.Module):
    """An encoder that counts its passes and answers by the count."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.layer, self.in_place = nn.Linear(3, 2), in_place
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.passes += 1
        else:
            self.passes = self.passes + 1
        return self.layer(x) * self.passes


def test_an_encoder_that_writes_a_buffer_is_refused_and_theta0_stays() -> None:
    encoder = Counting(in_place=True).eval()
    module = LinearizedEncoder(encoder)
    with pytest.raises(ValueError, match="writes its buffer passes"):
        module(torch.ones(2, 3))
    assert encoder.passes == module.theta0("passes") == 0
    assigning = LinearizedEncoder(Counting(in_place=False).eval())
    torch.testing.assert_close(assigning(torch.ones(2, 3)), assigning(torch.ones(2, 3)))
