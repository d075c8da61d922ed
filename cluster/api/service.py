"""The interface through which the routes use a cluster, and what passes through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from cluster.domain.api import CoordinatorAPI
from cluster.domain.compositions import Composition, CompositionMethod, Method
from cluster.domain.explanations import Explanation, Explanations
from cluster.domain.figures import PredictorFigures, StoreFigures
from cluster.domain.operations import Answers, AnswerWay, Belonging, Ranked, best
from cluster.domain.tasks import UNSAID, Options, Reading, Submission
from cluster.domain.work import TaskAccuracy
from cluster.storage.home import Home

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", covariant=True)


@dataclass(frozen=True)
class Question:
    """Inputs for one model. Without tasks, the classes of all tasks that it adds compete.

    `features`: the answer is f(x) + J(x) tau instead of classes; `pixels`: of all inputs together;
    `alone`: it gets a pass of its own; `explain`: the answer is what each vector adds; `told`: how
    many classes of each input the answer has, the likeliest of each task (None: all).
    """

    model: Composition
    inputs: Sequence[bytes | str]
    tasks: Sequence[str] | None = None
    way: AnswerWay = "linearized"
    beside_base: bool = False
    features: bool = False
    pixels: int = 0
    alone: bool = False
    explain: bool = False
    told: int | None = None

    @property
    def rows(self) -> int:
        """Rows that pass through the base model: an explained input does once for each vector."""
        return len(self.inputs) * (max(1, len(self.model.terms)) if self.explain else 1)

    def of_each_task(self, sizes: Sequence[int]) -> int | None:
        """How many classes of each task are answered, for tasks of `sizes` classes; None: all."""
        if self.told is None or sum(sizes) <= self.told:
            return None
        return max(1, self.told // len(sizes))


@dataclass(frozen=True)
class Answered:
    """The answer to each input, and that of the base model alone if it was requested; or features;
    or explanations. `more_classes`: how many classes each answer leaves out."""

    answers: list[Ranked]
    base: list[Ranked] | None = None
    belonging: list[Belonging] = field(default_factory=list)
    features: list[list[float]] | None = None
    explanations: tuple[Explanation, ...] = ()
    more_classes: int = 0

    def to_reply(
        self,
        asked: Question,
        seconds: float,
        measured: dict[str, TaskAccuracy] | None = None,
    ) -> Answers:
        """The answers as they are sent to the caller."""
        return Answers(
            user=asked.model.user,
            digest=asked.model.digest,
            way=asked.way,
            best=best(self.answers, asked.tasks),
            answers=tuple(self.answers),
            belonging=tuple(self.belonging),
            base=None if self.base is None else tuple(self.base),
            seconds=seconds,
            measured=measured,
            more_classes=self.more_classes,
        )

    def explained(self, asked: Question) -> Explanations:
        user, digest = asked.model.user, asked.model.digest
        return Explanations(user=user, digest=digest, explanations=self.explanations)


@dataclass(frozen=True)
class Upload:
    """A data set, stored at `data` for now, and how it is submitted: the keywords of
    `prepared_submission`."""

    data: Path
    name: str
    owner: str
    private: bool
    options: Options
    request_id: str
    reading: Reading = UNSAID
    templates: Sequence[str] = ()

    @property
    def files(self) -> list[Path]:
        return [self.data]

    def stored(self, home: Home) -> Submission:
        """Check and store its rows. Raises BadName, BadConfig and the errors of bad data."""
        from cluster.data.submissions import prepared_submission  # reads data sets: slow to import

        return prepared_submission(home, **vars(self))


@dataclass(frozen=True)
class GivenRows:
    """What a user's composition is made from: the keywords of `cluster.data.compositions.prepared`.
    `fit` or `adapt`: where the rows are stored for now."""

    owner: str
    terms: Sequence[str]
    method: Method
    select: str | None = None
    fit: Path | None = None
    shots: int | None = None
    adapt: Path | None = None
    reading: Reading = UNSAID

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.fit, self.adapt) if path]

    def stored(self, home: Home) -> CompositionMethod:
        """Check and store the rows. Raises BadConfig, BadRecipe and the errors of bad data."""
        from cluster.data.compositions import prepared

        said = {name: value for name, value in vars(self).items() if name != "owner"}
        return prepared(home, **said)


class SentFiles(Protocol[M]):
    """Files that a user sent, to be read once: an Upload, or GivenRows."""

    @property
    def owner(self) -> str: ...
    def stored(self, home: Home) -> M: ...


class Service(Protocol):
    """What the routes need of a cluster. Every method raises the errors of `tacl.errors`."""

    async def ask(
        self,
        method: Callable[Concatenate[CoordinatorAPI, P], R],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> R:
        """Call a method of the coordinator, such as `CoordinatorAPI.status`."""
        ...

    async def predict(self, question: Question) -> Answered:
        """Answer a question. Raises Overloaded if too many wait already."""
        ...

    async def predictors(self) -> Sequence[PredictorFigures]:
        """Figures of every predictor that answers now."""
        ...

    async def stored(self) -> StoreFigures:
        """Figures of the blob store, at most some minutes old."""
        ...

    async def reads(self) -> bool:
        """Return True as soon as a process for reading an upload can be started."""
        ...

    async def prepare(self, given: SentFiles[M]) -> M:
        """What `given.stored` returns, once all rows are checked and stored."""
        ...

    def scratch(self) -> AbstractContextManager[Path]:
        """A folder for uploads, from which files of killed processes are deleted later."""
        ...

    def reference(self, name: str) -> Path:
        """The path of a data set in the server's own data folder. Raises DataNotFound."""
        ...
