"""The whole method on tensors in memory: train a vector, then evaluate any sum of vectors.

For use in programs; a thin layer over `tacl.training.loop` and `tacl.evaluation.tangents`, which do
the work. Inputs are rows as the base model takes them: a tensor [N, ...], or a sequence of rows
such as `[base.prepare(text) for text in texts]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacl.backbone import Backbone
from tacl.compose.materialized import materialized_features
from tacl.data.batches import Labelled
from tacl.data.given import class_numbers, rows_of
from tacl.errors import BadBase, BadColumns, BaseMismatch, MixedRegimes, RunFailed
from tacl.evaluation.interference import tau_jp
from tacl.evaluation.metrics import accuracy
from tacl.evaluation.tangents import Cached, cached_tangents
from tacl.heads.head import Head
from tacl.models.linearized import linearize
from tacl.training import loop
from tacl.training.config import Sampled, default_config
from tacl.training.loop import PlainEngine, StepRecord, Store
from tacl.vectors.vector import TaskVector

Inputs = Tensor | Sequence[Tensor]
Rows = Mapping[str, Inputs] | tuple[Inputs, Tensor]
TRIED = 8  # rows of the pass that shows whether base and head fit
ALONE = 0.05  # change of a row's features by other rows that rounding, in bfloat16 too, explains


def features(base: Backbone, inputs: Inputs) -> Tensor:
    """f(x; theta0) of every row, before normalisation: [N, D], float32, on the CPU.

    `inputs`: rows as the base model takes them, a tensor [N, ...] or a sequence of rows.

    Raises EmptySplit for no rows, BadColumns for rows that are no tensors or make no batch,
    BadSample for NaN or infinities in them, BadBase for a wrapped module that returns anything but
    one tensor [B, D], ValueError inside `torch.autocast`.
    """
    return materialized_features(base, {}, _items(base, inputs))


@torch.inference_mode(False)
@torch.enable_grad()  # also where the program has switched gradients off
def train(
    base: Backbone,
    data: Rows,
    head: Head,
    *,
    against: Sequence[Inputs] = (),
    task: str = "task",
    penalty: Sampled = "mixed",
    penalty_weight: float | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    seed: int = 0,
    on_step: Callable[[StepRecord], bool | None] | None = None,
) -> TaskVector:
    """Train the linearized model on one task, under the tauJp penalty against other tasks' inputs.

    loss = cross-entropy(head(f(x) + J(x) tau), y) + lambda * mean (|J(x') tau| / m)^2, where x' are
    unlabelled rows of other tasks and m is the mean |f| over those of its task: tau learns the task
    and leaves the others alone, so that vectors add up. The same arguments give the same vector,
    bit for bit, on a CPU.

    Args:
        base: the base model, from `load` or `wrap`; it is not changed.
        data: {"inputs": rows, "labels": int64 [N]}, or the pair of them.
        head: the task's classifier, which is not changed.
        against: the unlabelled inputs of each other task; if empty, there is no penalty.
        penalty: "cyclical", against one other task a step in turn; "mixed", a row of each of
            several; "strict", against all.
        penalty_weight: lambda, without unit; None is 3, or 1 if the base has no text tower, as in
            `tacl submit`. None below is `default_config`'s rule too.
        steps, learning_rate, batch: optimizer steps, peak rate of AdamW, labelled rows a step.
        on_step: called after every step; return True to end the training.

    Raises:
        BadColumns: `data` has neither form, rows are no tensors or make no batch, or `against` is
            the rows of one task, not a list. BadSample: rows hold NaN or infinities.
        LabelOutOfRange: there is not one whole number per row, or the head has no class for one.
        BadBase: features are not [B, D], or those of a row depend on other rows. BaseMismatch: the
            head reads features of another length.
        EmptySplit: no rows. BadConfig: a setting that cannot work. RunFailed: training diverged.

    Source: OpenReview 1VwWi6zbxs (tauJp); arXiv 2305.12827 (training in the tangent space).
    """
    rows = _labelled(base, data, head)
    first = rows.items[0]
    stores = [_store(base, number, inputs, first) for number, inputs in enumerate(against)]
    chosen = {"steps": steps, "learning_rate": learning_rate, "batch": batch}
    given = {"penalty": penalty, "strength": penalty_weight} | chosen
    config = default_config(len(rows), seed, base.trainable, base.head_kind, **given)
    engine = PlainEngine(linearize(base), config)
    head = _in(engine.module.precision, head)
    loop.train(engine, base, head, rows, lambda step: stores, config, on_step=on_step)
    tau = engine.module.tau_dict()
    if not all(bool(value.isfinite().all()) for value in tau.values()):
        raise RunFailed(
            f"the vector of {task} is no finite number: the training diverged; give a smaller "
            "learning_rate"
        )
    return TaskVector.of_params(task, base.digest, "linearized", tau)


@dataclass(frozen=True)
class Evaluation:
    """f(x; theta0) and J(x) tau_t of labelled rows, which evaluate any recipe by addition alone.

    A recipe maps names of vectors to coefficients; a vector that it does not name has 0.
    """

    cached: Cached
    labels: Tensor
    head: Head

    def accuracy(self, recipe: Mapping[str, float]) -> float:
        """The share of rows that f + sum_t c_t J tau_t gets right; {} is the base model alone.

        Raises KeyError for a vector that was not evaluated.
        """
        return accuracy(self.head.logits(self.cached.linearized(recipe)), self.labels)

    def tau_jp(self, name: str) -> float:
        """Mean |J(x) tau|_2 over the rows, in the features' unit: how much the vector moves them.

        For another task's vector, this is its interference (OpenReview 1VwWi6zbxs).
        """
        return tau_jp(self.cached.tangents[name]).mean


def evaluate(
    base: Backbone, data: Rows, head: Head, vectors: Mapping[str, TaskVector]
) -> Evaluation:
    """Evaluate rows of one task in one pass per vector; recipes then need no further pass.

    `data` and `head` are as in `train`; `vectors`, at least one, are keyed by the names that
    recipes use.

    Raises what `train` does for rows, base and head; BaseMismatch for a vector of another base
    model, MixedRegimes for one that was not trained in the linearized model, ValueError for no
    vectors. Source: arXiv 2305.12827, equation 4 is linear in tau.
    """
    for name, vector in vectors.items():
        vector.require_base(base.digest, f"vector {name}", str(base.spec))
        if vector.regime != "linearized":
            raise MixedRegimes(
                f"vector {name} is {vector.regime}; only linearized ones add up exactly"
            )
    rows = _labelled(base, data, head)
    taus = {name: vector.to_params() for name, vector in vectors.items()}
    cached = cached_tangents(linearize(base), base, rows.items, taus)
    return Evaluation(cached, rows.labels, _in(torch.float32, head.to("cpu")))


def _store(base: Backbone, number: int, inputs: Inputs, like: Tensor) -> Store:
    items = _items(base, inputs)
    shape, own = list(items[0].shape), list(like.shape)
    if len(shape) != len(own) or (shape != own and _of_one_shape(base)):
        raise BadColumns(
            f"a row of other task {number} is {shape}, and one of the task {own}; `against` is a "
            "list with the inputs of each other task"
        )
    norm = features(base, items).norm(dim=-1).mean().item()
    return Store(f"other {number}", items, norm)


def _labelled(base: Backbone, data: Rows, head: Head) -> Labelled:
    """The rows, after a pass that shows whether base and head can be used with them."""
    if isinstance(data, Mapping):
        if data.keys() != {"inputs", "labels"}:
            raise BadColumns(f"the rows have {sorted(data)}; give 'inputs' and 'labels'")
        inputs, labels = data["inputs"], data["labels"]
    elif not isinstance(data, tuple | list):
        raise BadColumns(f"labelled rows are {type(data).__name__}; give the pair (inputs, labels)")
    elif len(data) == 2:
        inputs, labels = data
    else:
        raise BadColumns(f"{len(data)} parts of labelled rows; give the pair (inputs, labels)")
    items = _items(base, inputs)
    rows = Labelled(items, class_numbers(labels, len(items), len(head.classes)))
    features_ND, alone_1D = features(base, items[:TRIED]), features(base, items[:1])
    width, read = features_ND.shape[1], head.weight_CD.shape[1]
    if read != width:
        raise BaseMismatch(
            f"the head reads {read} features, and base {base.spec} gives {width}; make the head of "
            "features of this base"
        )
    if (features_ND[0] - alone_1D[0]).norm() > ALONE * features_ND[0].norm():
        raise BadBase(
            f"base {base.spec}: the features of a row depend on the other rows of its batch, or on "
            "chance; let the module treat each row alone, and drop nothing in eval mode"
        )
    return rows


def _in(precision: torch.dtype, head: Head) -> Head:
    return replace(head, weight_CD=head.weight_CD.to(precision))


def _items(base: Backbone, inputs: Inputs) -> list[Tensor]:
    return rows_of(inputs, of_one_shape=_of_one_shape(base))


def _of_one_shape(base: Backbone) -> bool:
    return base.inputs.modality != "text"  # texts are padded
