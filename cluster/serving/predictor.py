"""The predictor: one loaded base, resident vectors, and any number of users' models over them.

Questions of different users are answered in one pass (`tacl.models.mixed`). A plain class: what
makes it remote is `cluster.serving.app`, and `cluster.runtime.connection` for a client on the same
machine.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from cluster.api import limits
from cluster.api.service import Answered, Question, Ranked
from cluster.domain.compositions import Composition, Merged
from cluster.domain.explanations import Explanation, parts_of
from cluster.domain.figures import Kept
from cluster.domain.methods import answering, head_blobs, recipe_of
from cluster.domain.names import no_such
from cluster.domain.operations import Belonging
from cluster.domain.tasks import VectorRef
from cluster.learner.artifacts import BATCH, Materials, given_device
from cluster.serving import memory
from cluster.serving.cache import ComposedCache
from cluster.serving.explaining import explained
from cluster.serving.residency import Residency
from cluster.storage.home import Home
from tacl.backbone import Item
from tacl.dual.encode import encode
from tacl.errors import BadRecipe, MixedRegimes, RunFailed, TaclError, TooLarge, UnknownTask
from tacl.evaluation.contributions import Contributions
from tacl.heads.columns import Columns
from tacl.heads.head import Head
from tacl.heads.novelty import Novelty
from tacl.models.frozen import trainable_blocks
from tacl.models.mixed import MultiRecipeEncoder, Recipe, mixes, summed
from tacl.vectors.params import Params
from tacl.vectors.vector import Regime

LOG = logging.getLogger(__name__)
PLAIN: Recipe = {}  # the base alone
FOR_COMPOSED = 4  # one part in so many of its memory is for models that are kept composed
LARGEST = 1e12  # coefficient and feature: in float32 there are sums of their squares
T = TypeVar("T")
Decoded = list[Item] | TaclError


class Resident(NamedTuple):
    """A vector in memory, dense and on the device of the passes."""

    regime: Regime
    tau: Params


class Predictor:
    """Answers questions about any models. On a CPU vectors are mapped from their files, so that the
    predictors of a machine share them; a GPU gets copies when they are needed. Beyond `most` bytes,
    by default a share of the memory, the least recently used are dropped. `predictors`: how many
    use the same memory."""

    def __init__(
        self,
        home: str,
        most: int | None = None,
        device: str | None = None,
        predictors: int = 1,
    ) -> None:
        place = Home.at(home)
        settings = place.founded()
        self._materials = Materials(place, settings.base, device or given_device())
        self._backbone = self._materials.backbone
        if most is None:
            most = memory.share(self._backbone.device, predictors)
        encoder, moved = self._backbone.encoder, self._backbone.trainable
        blocks = set(trainable_blocks(encoder, moved))
        theta0 = {name: value for name, value in encoder.named_parameters() if name in blocks}
        self._each = bytes_of(theta0)  # a model that is kept composed takes as many
        self._composed = ComposedCache(most // FOR_COMPOSED // self._each)
        self._resident = Residency(most - most // FOR_COMPOSED)
        self._taus: dict[str, Params] = {}  # of this batch, by digest of the vector
        self._known = ChainMap(self._taus, self._composed.kept)
        self._mixed = MultiRecipeEncoder(encoder, moved, self._known)
        self._mixes = mixes(self._backbone)
        if not self._mixes:
            LOG.warning(
                "rows of different users cannot share a pass through %s", settings.base.spec
            )
        self._module = None if self._mixes else self._materials.linearized()

    def kept(self) -> Kept:
        """What is in memory; called by another thread than the one that answers."""
        resident, models = self._resident, len(self._composed.kept)
        return Kept(
            vectors=sum(isinstance(one, Resident) for one in resident.values()),
            models=models,
            bytes=resident.bytes + models * self._each,
            hits=resident.hits,
            misses=resident.misses,
        )

    def ask(self, question: Question) -> Answered:
        """A question by itself.

        Exact: the dual forward of the composed vector. Raises BadSample, ModalityMismatch,
        UnknownTask (not in the composition), BadRecipe (none is named, all are subtracted),
        MixedRegimes.
        """
        (found,) = self.answer([question])
        if isinstance(found, TaclError):
            raise found
        return found

    @torch.no_grad()
    def answer(
        self, questions: Sequence[Question], decoded: Sequence[Decoded] | None = None
    ) -> list[Answered | TaclError]:
        """Answer all questions in one pass; each entry is the answer or the error. `decoded`: the
        result of `decode` for each question."""
        decoded = decoded or [self.decode(question) for question in questions]
        try:
            with self._resident.batch():
                return self._answered(questions, decoded)
        finally:
            self._taus.clear()

    def _answered(
        self, questions: Sequence[Question], decoded: Sequence[Decoded]
    ) -> list[Answered | TaclError]:
        asked = [self._opened(*pair) for pair in zip(questions, decoded, strict=True)]
        fine = [one for one in asked if isinstance(one, _Asked)]
        alone = [part for one in fine if one.question.explain for part in one.parts()]
        self._exact([(part, item) for part in alone for item in part.items])
        fine = [one for one in fine if not one.question.explain]
        digests = {one.question.model.digest for one in fine}
        if len(digests) == 1 and digests <= self._composed.kept.keys():
            for one in fine:  # nothing to mix; beside others a sum would be one more vector
                one.recipe = dict.fromkeys(digests, 1.0)
        rows = [(one, item) for one in fine for item in one.items]
        self._exact([one for one in rows if one[0].question.way == "linearized"])
        for one in fine:
            if one.question.way == "materialized":
                one.features += self._materialized(one)
        bases = [one.under_base() for one in fine if one.question.beside_base]
        self._exact([(base, item) for base in bases for item in base.items])
        return [one if isinstance(one, TaclError) else _met(one.answered) for one in asked]

    def decode(self, question: Question) -> Decoded:
        """The prepared inputs of a question, or the error. Uses nothing that `answer` changes, so
        that other threads may decode while one answers; texts must be decoded in one thread."""
        return _met(lambda: [self._backbone.prepare(raw) for raw in question.inputs])

    def _opened(self, question: Question, items: Decoded) -> _Asked | TaclError:
        if isinstance(items, TaclError):
            return items

        def opened() -> _Asked:
            columns = self._columns(question)
            _require_explainable(question, columns)
            recipe = self._recipe(question.model)
            return _Asked(question, items, columns, recipe, self._novelty(question))

        return _met(opened)

    def _novelty(self, question: Question) -> Novelty | None:
        blob = question.model.novelty
        if blob is None or question.features or question.tasks:
            return None
        return self._resident.get(blob, self._materials.novelty, lambda n: bytes_of(n.to_params()))

    def _columns(self, question: Question) -> Columns | None:
        """The columns of the tasks that may be the answer; None if features are requested."""
        if question.features:
            return None
        model = question.model
        blobs = head_blobs(model)
        unknown = sorted(set(question.tasks or ()) - blobs.keys())
        if unknown:
            raise UnknownTask(no_such(f"task of {model.user}'s model", unknown[0], blobs))
        tasks = question.tasks or answering(model)
        if not tasks:
            raise BadRecipe(
                f"{model.user}'s model adds no task, so that none can be the answer; ask for one "
                f"by its name: {', '.join(blobs)}"
            )
        return Columns({task: self._head(blobs[task]) for task in tasks})

    def _head(self, blob: str) -> Head:
        return self._resident.get(blob, self._materials.head, lambda h: bytes_of(h.to_params()))

    def _recipe(self, model: Composition) -> Recipe:
        """Coefficients by digest of the vector; a model that is asked often gets composed."""
        if model.merged is not None:
            self._vector(model.merged)
            return {model.merged.digest: 1.0}
        if not model.terms:
            raise BadRecipe("a composition needs at least one vector")
        if any(abs(term.coefficient) > LARGEST for term in model.terms):
            raise _too_large(model)  # before sums of it, which are not made by question
        regimes = {self._vector(term.vector).regime for term in model.terms}
        if regimes != {"linearized"}:
            raise MixedRegimes("only models of linearized vectors can be asked so far")
        recipe = recipe_of(model.terms)
        self._composed.count(model.digest, lambda: summed(recipe, self._taus))
        return recipe

    def _vector(self, ref: VectorRef | Merged) -> Resident:
        kept = self._resident.get(ref.digest, lambda _: self._read(ref), lambda v: bytes_of(v.tau))
        self._taus[ref.digest] = kept.tau
        return kept

    def _read(self, ref: VectorRef | Merged) -> Resident:
        vector, device = self._materials.vector(ref), self._backbone.device
        tau = {name: block.to(device) for name, block in vector.to_params().items()}
        return Resident(vector.regime, tau)

    def _exact(self, rows: Sequence[tuple[_Asked, Item]]) -> None:
        """Compute f_lin of every row and append it to the row's question. Batches have the rows of
        a model together, also if several questions are about it."""
        ordered = sorted(rows, key=lambda row: row[0].key)
        for start in range(0, len(ordered), BATCH):
            chunk = ordered[start : start + BATCH]
            batch = self._backbone.collate([item for _, item in chunk])
            plain_BE, tangent_BD = self._parts(batch, chunk)
            moved_BD = plain_BE[:, : tangent_BD.shape[1]] + tangent_BD
            for (one, _), plain_E, moved_D in zip(chunk, plain_BE, moved_BD, strict=True):
                one.plain.append(plain_E)
                one.features.append(moved_D)

    def _parts(self, batch, chunk: Sequence[tuple[_Asked, Item]]) -> tuple[Tensor, Tensor]:
        """The features of every row at theta0 (`Backbone.plain`), and J(x) tau."""
        users: list[tuple[Recipe, int]] = []
        keys: list[str] = []
        for one, _ in chunk:
            if keys[-1:] == [one.key]:
                users[-1] = (users[-1][0], users[-1][1] + 1)
            else:
                users.append((one.recipe, 1))
                keys.append(one.key)
        if self._module is None:
            with self._backbone.watched(batch) as plain:
                features_BD, tangent_BD = self._mixed.parts(batch, users)
            return plain(features_BD).float().cpu(), tangent_BD.float().cpu()
        parts, start = [], 0
        for recipe, count in users:
            own = slice(start, start + count)
            rows = {k: v[own] for k, v in batch.items()} if isinstance(batch, dict) else batch[own]
            self._module.load_tau(summed(recipe, self._known))
            parts.append(self._module(rows)[1])
            start += count
        return self._backbone.plain(batch).float().cpu(), torch.cat(parts).float().cpu()

    def _materialized(self, one: _Asked) -> list[Tensor]:
        """f(x; theta0 + sum c tau), an approximation of the model that was composed."""
        encoder, tau = self._backbone.encoder, summed(one.recipe, self._known)
        theta0 = dict(encoder.named_parameters())
        theta = {name: theta0[name] + value for name, value in tau.items()}
        batch = self._backbone.collate(one.items)
        return list(encode(encoder, theta, batch).float().cpu())


def _met(step: Callable[[], T]) -> T | TaclError:
    """What a step returns, or its error, so that the error of one question spares the others."""
    try:
        return step()
    except TaclError as error:
        return error
    except Exception as error:
        LOG.exception("a query failed unexpectedly")
        return RunFailed(f"internal error: {type(error).__name__}")


def _too_large(model: Composition) -> BadRecipe:
    return BadRecipe(
        f"{model.user}'s model has features that are too large for an answer, or no numbers; "
        "compose it with smaller coefficients, or without the vector that does this"
    )


def _require_explainable(question: Question, columns: Columns | None) -> None:
    """Raises TooLarge: each part of an answer has a number for each class."""
    if not question.explain or columns is None:
        return
    classes, parts = sum(map(len, columns.classes.values())), len(parts_of(question.model))
    if classes * (parts + 2) > limits.EXPLAINED_NUMBERS:
        raise TooLarge(
            f"what {parts} vectors add to each of {classes:,} classes is more than "
            f"{limits.EXPLAINED_NUMBERS:,} numbers; name a task, whose classes alone compete"
        )


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    return sum(value.nbytes for value in tensors.values())


class _Asked:
    """A question on its way: prepared inputs, the columns of its tasks, and the features that
    come."""

    def __init__(
        self,
        question: Question,
        items: list[Item],
        columns: Columns | None,
        recipe: Recipe,
        novelty: Novelty | None = None,
    ) -> None:
        self.question, self.items, self.columns, self.recipe = question, items, columns, recipe
        self.novelty = novelty
        self.key = question.model.digest if recipe is not PLAIN else ""
        self.plain: list[Tensor] = []  # at theta0; none of a model that is one encoder
        self.features: list[Tensor] = []
        self._parts: list[_Asked] = []
        self._base: _Asked | None = None

    def parts(self) -> list[_Asked]:
        """The same inputs under each vector alone, with its coefficient."""
        for place, (vector, coefficient) in enumerate(self.recipe.items()):
            part = _Asked(self.question, self.items, self.columns, {vector: coefficient})
            part.key += f" {place}"
            self._parts.append(part)
        return self._parts

    def under_base(self) -> _Asked:
        """The same inputs under the plain base."""
        self._base = _Asked(self.question, self.items, self.columns, PLAIN)
        return self._base

    def answered(self) -> Answered:
        self._require_moderate()
        if self.question.explain and self.columns is not None:
            rows = range(len(self.items))
            return Answered([], explanations=tuple(self._explained(self.columns, r) for r in rows))
        if self.columns is None:
            return Answered([], features=[feature_D.tolist() for feature_D in self.features])
        base = self._base and self._base.ranked(self.columns)
        ranked, belonging = self.ranked(self.columns), self.belonging(self.columns)
        classes = self.columns.classes
        more_classes = sum(
            len(classes[task]) - len(of) for row in ranked[:1] for task, of in row.items()
        )
        return Answered(ranked, base, belonging, more_classes=more_classes)

    def _require_moderate(self) -> None:
        """Raises BadRecipe for features that are too large for heads, or no numbers."""
        found = [*self.features, *(one for part in self._parts for one in part.features)]
        if found and not bool((torch.stack(found).abs() <= LARGEST).all()):
            raise _too_large(self.question.model)

    def belonging(self, columns: Columns) -> list[Belonging]:
        if self.novelty is None or not self.plain:
            return []
        belonging_N, none_N = self.novelty.judge(torch.stack(self.plain), columns.heads)
        told = zip(belonging_N.tolist(), none_N.tolist(), strict=True)
        return [Belonging(probability=chance, none=none) for chance, none in told]

    def _explained(self, columns: Columns, row: int) -> Explanation:
        plain_E = self._parts[0].plain[row]
        moved_TD = torch.stack([part.features[row] for part in self._parts])
        moves_TD = moved_TD - plain_E[: moved_TD.shape[1]]
        return explained(Contributions(plain_E, moves_TD), parts_of(self.question.model), columns)

    def ranked(self, columns: Columns) -> list[Ranked]:
        if not self.features:
            return []
        features_ND = torch.stack(self.features)
        plain_NE = torch.stack(self.plain) if self.plain else None
        columns = columns if self.plain else columns.narrow()
        answer = columns.within if self.question.tasks else columns.joint
        shares = answer(features_ND, plain_NE)
        classes = columns.classes
        most = self.question.of_each_task([*map(len, classes.values())])
        ranked = {task: _ranked(names, shares[task], most) for task, names in classes.items()}
        return [dict(zip(ranked, row, strict=True)) for row in zip(*ranked.values(), strict=True)]


def _ranked(
    classes: tuple[str, ...], shares_NC: Tensor, most: int | None
) -> list[list[tuple[str, float]]]:
    """The likeliest classes of each row. All rows are sorted together: with many classes, taking
    each number from a tensor by itself would take longer than the pass."""
    ordered_NC, places_NC = shares_NC.sort(dim=-1, descending=True, stable=True)
    rows = zip(places_NC[:, :most].tolist(), ordered_NC[:, :most].tolist(), strict=True)
    return [
        [(classes[place], share) for place, share in zip(places, shares, strict=True)]
        for places, shares in rows
    ]
