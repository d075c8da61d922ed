"""None of these: whether an input belongs to any task of a model (open-set recognition).

At theta0 one softmax is over the classes of every task that heads are fitted of, and one more for
the generic samples, which are of no task. What it gives to the tasks of a model is the probability
that a row belongs there; what it gives to others, that it does not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacl.data.splits import sample_rows
from tacl.heads.columns import Columns
from tacl.heads.head import Head, union
from tacl.vectors.params import Params

GENERIC = ""  # in the place of a task's name: samples of no task
KEPT = 0.95  # of a model's own rows belong to it
REMEMBERED = 1000  # thresholds, of different models
JUDGED = 2000  # validation rows of all tasks together, from which the threshold of a model comes


@dataclass(frozen=True)
class Novelty:
    """`head`: columns of the tasks, `sizes` of each. `judged_NT`: P(task | x) of validation rows,
    of the task `whose_N`."""

    head: Head
    sizes: Mapping[str, int]
    judged_NT: Tensor
    whose_N: Tensor
    # Thresholds by the tasks: whoever asks a model often asks for the same one.
    _reached: dict[frozenset[str], float] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def of(heads: Mapping[str, Head], validation: Mapping[str, Tensor]) -> Novelty:
        """From heads that were fitted together on f(x; theta0), features_ND in `validation`.

        Of a task its share of JUDGED is chosen, whatever the order of its rows.
        """
        most = max(1, JUDGED // len(heads))
        columns, judged, whose = Columns(heads), [], []
        for place, task in enumerate(heads):
            rows_ND = validation[task]
            some_ND = rows_ND[sample_rows(range(len(rows_ND)), most, 0)]
            shares = columns.joint(some_ND)
            judged.append(torch.stack([shares[other].sum(-1) for other in heads], -1))
            whose.append(torch.full((len(some_ND),), place))
        sizes = {task: len(head.classes) for task, head in heads.items()}
        return Novelty(union(list(heads.values())), sizes, torch.cat(judged), torch.cat(whose))

    def belonging(self, plain_NE: Tensor, tasks: Collection[str]) -> Tensor:
        """P(some of the tasks | x), [N], of rows as they are at theta0."""
        shares_NC = self.head.logits(self.head.read(plain_NE)).softmax(-1)
        sizes_T = torch.tensor([*self.sizes.values()])
        return shares_NC[:, self._own(tasks).repeat_interleave(sizes_T)].sum(-1)

    def threshold(self, tasks: Collection[str]) -> float:
        """What KEPT of the tasks' own validation rows reach; 0 for tasks without any."""
        asked = frozenset(tasks)
        if (found := self._reached.get(asked)) is None:
            own_T = self._own(asked)
            rows_NT = self.judged_NT[own_T[self.whose_N]]
            found = rows_NT[:, own_T].sum(-1).quantile(1 - KEPT).item() if len(rows_NT) else 0.0
            if len(self._reached) >= REMEMBERED:
                self._reached.clear()
            self._reached[asked] = found
        return found  # whatever other threads have made of what is remembered

    def _own(self, tasks: Collection[str]) -> Tensor:
        """Which of all tasks are among these, bool [T]."""
        return torch.tensor([task in tasks for task in self.sizes])

    def area(self, own: Mapping[str, Tensor], foreign_ND: Tensor) -> float:
        """Area under the ROC curve of `belonging`: rows of a model's own tasks, features_ND at
        theta0, against foreign ones; mean over the own tasks."""
        foreign_N = self.belonging(foreign_ND, own)
        areas = [roc_area(self.belonging(f_ND, own), foreign_N) for f_ND in own.values()]
        return sum(areas) / len(areas)

    def auroc(self, own: Mapping[str, Tensor]) -> float | None:
        """The same against the judged rows of every other task, mean over all pairs of a task and
        another. None where there is no other."""
        own_T = self._own(own)
        foreign_M = self.judged_NT[:, own_T].sum(-1)
        others = [foreign_M[self.whose_N == i] for i in (~own_T).nonzero().flatten().tolist()]
        scores = [self.belonging(plain_NE, own) for plain_NE in own.values()]
        areas = [roc_area(own_N, other_M) for own_N in scores for other_M in others]
        return sum(areas) / len(areas) if areas else None

    def to_params(self) -> Params:
        sizes = torch.frombuffer(bytearray(json.dumps(self.sizes).encode()), dtype=torch.uint8)
        head = {f"head.{name}": value for name, value in self.head.to_params().items()}
        return {**head, "sizes": sizes, "judged": self.judged_NT, "whose": self.whose_N}

    @staticmethod
    def from_params(params: Params) -> Novelty:
        head = {
            name.removeprefix("head."): value
            for name, value in params.items()
            if name.startswith("head.")
        }
        sizes = json.loads(bytes(params["sizes"].tolist()).decode())
        return Novelty(Head.from_params(head), sizes, params["judged"], params["whose"])


def roc_area(higher_N: Tensor, lower_M: Tensor) -> float:
    """The chance that one of the first is higher than one of the second; ties count half."""
    order_M = lower_M.sort().values
    below_N = torch.searchsorted(order_M, higher_N.contiguous())
    equal_N = torch.searchsorted(order_M, higher_N.contiguous(), right=True) - below_N
    return ((below_N + equal_N / 2) / len(lower_M)).mean().item()
