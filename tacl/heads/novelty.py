"""None of these: whether an input belongs to any task of a model (open-set recognition).

At theta0 one softmax is over the classes of every task with fitted heads, and one more class for
the generic samples, which are of no task. Its probability of the tasks of a model is that a row
belongs to the model; that of all others, that it does not. It knows nothing of inputs unlike any
that it was fitted on: so a row must also be as near to the classes of the model's tasks as their
own rows are (results/heads-choice.md has the results of each alone).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacl.data.splits import sample_rows
from tacl.heads.columns import Columns
from tacl.heads.head import Head, union
from tacl.heads.mahalanobis import Mahalanobis
from tacl.vectors.params import Params

GENERIC = ""  # in place of a task's name: samples of no task
KEPT = 0.95  # share of a model's own rows that count as belonging to it
REMEMBERED = 100  # models whose scores are remembered
JUDGED = 2000  # validation rows of all tasks together, which give the threshold of a model


@dataclass(frozen=True)
class ReferenceScores:
    """Scores of the validation rows of a model's tasks, each in rising order: P(the tasks | x), and
    their nearness (minus the distance); and the typicality that the share KEPT of them reach."""

    belonging_N: Tensor
    near_N: Tensor | None
    threshold: float


@dataclass(frozen=True)
class Novelty:
    """Detects rows of no task. `head` has the columns of the tasks, `sizes` how many of each. For
    validation rows, of the task numbered `task_N`, `probability_NT` is P(task | x) and
    `distance_NT` the distance to each task. Without `space`, as in a home of an earlier version,
    distances are not used."""

    head: Head
    sizes: Mapping[str, int]
    probability_NT: Tensor
    task_N: Tensor
    space: Mahalanobis | None = None
    distance_NT: Tensor | None = None
    # By the set of tasks: queries often repeat for the same model.
    _known: dict[frozenset[str], ReferenceScores] = field(
        default_factory=dict, init=False, repr=False
    )

    @staticmethod
    def of(
        heads: Mapping[str, Head],
        train: Mapping[str, tuple[Tensor, Tensor]],
        validation: Mapping[str, Tensor],
    ) -> Novelty:
        """From heads that were fitted together at theta0, features_ND and labels_N to train on, and
        features_ND to validate on. No row is near to a task without `train` rows, such as the
        generic samples. Each task has an equal share of the JUDGED rows, whatever its rows' order.
        """
        most = max(1, JUDGED // len(heads))
        sizes = {task: len(head.classes) for task, head in heads.items()}
        space = Mahalanobis.of(train, sizes)
        columns, judged, far, whose = Columns(heads), [], [], []
        for place, task in enumerate(heads):
            rows_ND = validation[task]
            some_ND = rows_ND[sample_rows(range(len(rows_ND)), most, 0)]
            shares = columns.joint(some_ND)
            judged.append(torch.stack([shares[other].sum(-1) for other in heads], -1))
            whose.append(torch.full((len(some_ND),), place))
            if space is not None:
                far.append(space.distances(some_ND, [*sizes.values()]))
        found = union(list(heads.values())), sizes, torch.cat(judged), torch.cat(whose)
        return Novelty(*found, space, torch.cat(far) if far else None)

    def belonging(self, plain_NE: Tensor, tasks: Collection[str]) -> Tensor:
        """P(x is of one of the tasks), [N], of rows at theta0."""
        shares_NC = self.head.logits(self.head.read(plain_NE)).softmax(-1)
        sizes_T = torch.tensor([*self.sizes.values()])
        own_C = self._own(tasks).repeat_interleave(sizes_T)
        return shares_NC[:, own_C].sum(-1).clamp_max(1)  # rounded, a sum may be more

    def typicality(self, plain_NE: Tensor, tasks: Collection[str]) -> Tensor:
        """Among the tasks' own validation rows and the row itself, the share whose `belonging` is
        not higher, times the share that is not nearer to a class of the tasks; [N]."""
        return self._at(plain_NE, self.belonging(plain_NE, tasks), tasks)

    def judge(self, plain_NE: Tensor, tasks: Collection[str]) -> tuple[Tensor, Tensor]:
        """`belonging`, and which rows are of none of the tasks, bool [N]."""
        belonging_N = self.belonging(plain_NE, tasks)
        return belonging_N, self._at(plain_NE, belonging_N, tasks) < self.threshold(tasks)

    def _at(self, plain_NE: Tensor, belonging_N: Tensor, tasks: Collection[str]) -> Tensor:
        far_N = None
        if self.space is not None:
            rows_NE = plain_NE[..., : len(self.space.matrix_EE)]
            distance_NT = self.space.distances(rows_NE, [*self.sizes.values()])
            far_N = self._nearest(distance_NT, self._own(tasks))
        return self._typical(self._of(tasks), belonging_N, far_N)

    def threshold(self, tasks: Collection[str]) -> float:
        """The typicality that the share KEPT of the tasks' own validation rows reach; 0 without
        rows."""
        return self._of(tasks).threshold

    def _of(self, tasks: Collection[str]) -> ReferenceScores:
        asked = frozenset(tasks)
        if (found := self._known.get(asked)) is None:
            own_T = self._own(asked)
            belonging_N, far_N = self._judged(own_T, own_T[self.task_N])
            near_N = None if far_N is None else (-far_N).sort().values
            found = ReferenceScores(belonging_N.sort().values, near_N, 0.0)
            if len(belonging_N):
                typical_N = self._typical(found, belonging_N, far_N, beside=0)
                found = replace(found, threshold=typical_N.quantile(1 - KEPT).item())
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[asked] = found
        return found  # not read from _known, which other threads may have cleared

    def _judged(self, own_T: Tensor, which_N: Tensor) -> tuple[Tensor, Tensor | None]:
        """P(the tasks | x) of the validation rows `which_N`, and their distance to the tasks."""
        belonging_N = self.probability_NT[which_N][:, own_T].sum(-1).clamp_max(1)
        distance_NT = None if self.distance_NT is None else self.distance_NT[which_N]
        return belonging_N, None if distance_NT is None else self._nearest(distance_NT, own_T)

    @staticmethod
    def _nearest(distance_NT: Tensor, own_T: Tensor) -> Tensor:
        return distance_NT.masked_fill(~own_T, torch.inf).min(-1).values

    @staticmethod
    def _typical(
        own: ReferenceScores, belonging_N: Tensor, far_N: Tensor | None, beside: int = 1
    ) -> Tensor:
        typical_N = _share(own.belonging_N, belonging_N, beside)
        if own.near_N is not None and far_N is not None:
            typical_N = typical_N * _share(own.near_N, -far_N, beside)
        return typical_N

    def _own(self, tasks: Collection[str]) -> Tensor:
        """Which of all tasks are in `tasks`, bool [T]."""
        return torch.tensor([task in tasks for task in self.sizes])

    def auroc_against(self, own: Mapping[str, Tensor], foreign_ND: Tensor) -> float:
        """Area under the ROC curve of `typicality`: rows of a model's own tasks, features_ND at
        theta0, against foreign ones; mean over the own tasks."""
        foreign_N = self.typicality(foreign_ND, own)
        areas = [roc_auc(self.typicality(f_ND, own), foreign_N) for f_ND in own.values()]
        return sum(areas) / len(areas)

    def auroc(self, own: Mapping[str, Tensor]) -> float | None:
        """Like `auroc_against`, but against the stored validation rows of every other task; the
        mean over all pairs of an own task and another. None if there is no other."""
        own_T, known = self._own(own), self._of(own)
        others = [
            self._typical(known, *self._judged(own_T, self.task_N == other))
            for other in (~own_T).nonzero().flatten().tolist()
        ]
        scores = [self.typicality(plain_NE, own) for plain_NE in own.values()]
        areas = [roc_auc(own_N, other_M) for own_N in scores for other_M in others]
        return sum(areas) / len(areas) if areas else None

    def to_params(self) -> Params:
        sizes = torch.frombuffer(bytearray(json.dumps(self.sizes).encode()), dtype=torch.uint8)
        params = {f"head.{name}": value for name, value in self.head.to_params().items()}
        params |= {"sizes": sizes, "judged": self.probability_NT, "whose": self.task_N}
        if self.space is not None and self.distance_NT is not None:
            params |= {f"space.{name}": value for name, value in self.space.to_params().items()}
            params["far"] = self.distance_NT
        return params

    @staticmethod
    def from_params(params: Params) -> Novelty:
        """The object that `to_params` wrote; those of an earlier version have no `space`."""
        head, space = (_part(params, name) for name in ("head.", "space."))
        sizes = json.loads(bytes(params["sizes"].tolist()).decode())
        found = Head.from_params(head), sizes, params["judged"], params["whose"]
        return Novelty(*found, Mahalanobis.from_params(space) if space else None, params.get("far"))


def _part(params: Params, prefix: str) -> Params:
    return {
        name.removeprefix(prefix): value
        for name, value in params.items()
        if name.startswith(prefix)
    }


def _share(rising_M: Tensor, values_N: Tensor, beside: int) -> Tensor:
    """For each value, the share of `rising_M` and of the value itself that is not higher, [N].
    `beside` is 1, or 0 if the values are already in `rising_M`: then they count only once."""
    below_N = torch.searchsorted(rising_M, values_N.contiguous(), right=True)
    return (below_N + beside) / (len(rising_M) + beside)


def roc_auc(higher_N: Tensor, lower_M: Tensor) -> float:
    """The probability that a value of the first is above one of the second; ties count half."""
    order_M = lower_M.sort().values
    below_N = torch.searchsorted(order_M, higher_N.contiguous())
    equal_N = torch.searchsorted(order_M, higher_N.contiguous(), right=True) - below_N
    return ((below_N + equal_N / 2) / len(lower_M)).mean().item()
