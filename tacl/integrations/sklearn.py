"""A task vector as a classifier of scikit-learn; needs the extra `sklearn`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from tacl.backbone import Backbone
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.head import prototype_head
from tacl.in_memory import features, train
from tacl.models.linearized import linearize
from tacl.training.config import Sampled


@dataclass(eq=False, repr=False)
class TaclClassifier(ClassifierMixin, BaseEstimator):
    """One task's vector and head on a base model; the vector can be added to other vectors.

    Rows are numbers [N, ...] for a wrapped module, otherwise texts or the bytes of pictures, also
    as the one column of a frame. Numbers become float32, except those of an integer tensor, such as
    token ids. The head consists of class means. After `fit`: `vector_`, a `tacl.TaskVector`;
    `head_`; `classes_`.

    Args:
        base: from `tacl.load` or `tacl.wrap`.
        against: unlabelled rows of each other task, on which the vector should have no effect.
        penalty, penalty_weight, steps, learning_rate, batch, seed: as in `tacl.train`.
    """

    base: Backbone
    _: KW_ONLY
    against: Sequence[Any] = ()
    penalty: Sampled = "mixed"
    penalty_weight: float | None = None
    steps: int | None = None
    learning_rate: float | None = None
    batch: int | None = None
    seed: int = 0

    def fit(self, X: Any, y: Any) -> Self:
        """Train. Raises ValueError for labels that are no classes, and what `tacl.train` raises."""
        check_classification_targets(y)
        # An array, because scikit-learn turns a 0 in a column of pandas' "Int64" into 0.0.
        y = column_or_1d(np.asarray(y), warn=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        rows, labels_N = self._rows(X), torch.from_numpy(labels)
        names = tuple(str(one) for one in self.classes_)
        self.head_ = prototype_head(features(self.base, rows), labels_N, names)
        how = {one.name: getattr(self, one.name) for one in fields(TaclClassifier)}
        how["against"] = [self._rows(other) for other in self.against]
        self.vector_ = train(data=(rows, labels_N), head=self.head_, **how)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """[N, C], in the order of `classes_`. Raises NotFittedError before `fit`."""
        check_is_fitted(self)
        taus = {"own": self.vector_.to_params()}
        found = cached_tangents(linearize(self.base), self.base, self._rows(X), taus)
        logits_NC = self.head_.to("cpu").logits(found.linearized({"own": 1.0}))
        return logits_NC.double().softmax(-1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, in the form given to `fit`."""
        shares_NC = self.predict_proba(X)
        return self.classes_[shares_NC.argmax(-1)]

    def _rows(self, X: Any) -> list[Tensor] | list[Any]:
        if self.base.inputs.modality == "tensor":
            numbers = X if isinstance(X, Tensor) else torch.as_tensor(np.asarray(X)).float()
            return list(numbers.float() if numbers.is_floating_point() else numbers)
        # Iterating over a frame would yield the names of its columns.
        rows = X if getattr(X, "ndim", 1) == 1 else column_or_1d(X)
        return [self.base.prepare(row) for row in rows]
