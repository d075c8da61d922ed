"""The settings of the tables: for each suite, a function that returns its full configuration.

text8, text14 and vision8 are small enough for two cores; clip8 is the published setting. For texts,
passes use the number format that is faster here. The measurement is of matrix products as in their
layers; it does not apply to convolutions, and the published setting is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any

import torch

from cluster.domain.names import no_such
from tacl.errors import BadConfig
from tacl.training.config import STRENGTHS, Norm, Precision, RefreshConfig, TrainConfig
from tacl.training.precision import faster

# The published prompts of CLIP (openai/CLIP, data/prompts.md) for the tasks of clip8. SVHN is not
# among them; it has those of MNIST, as in the published code of task vectors.
ARTICLES = ("", "a ", "the ")
TEXTURES = ("texture", "pattern", "thing", "object")
SIGHTS = ("zoomed in", "centered", "close up")
VIEWS = [f"{by} {kind}" for kind in ("imagery", "photo", "view") for by in ("satellite", "aerial")]
CARS = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a photo of my {}.",
    "i love my {}!",
    "a photo of my dirty {}.",
    "a photo of my clean {}.",
    "a photo of my new {}.",
    "a photo of my old {}.",
)
DTD = tuple(f"a photo of {one}{{}} {kind}." for one, kind in product(ARTICLES[1:], TEXTURES))
EUROSAT = tuple(f"a centered satellite photo of {one}{{}}." for one in ARTICLES)
GTSRB = tuple(f'a {sight} photo of a "{{}}" traffic sign.' for sight in SIGHTS)
NUMBER = ('a photo of the number: "{}".',)
RESISC45 = tuple(f"{view} of {one}{{}}." for one, view in product(ARTICLES, VIEWS))
SUN397 = ("a photo of a {}.", "a photo of the {}.")


@dataclass(frozen=True)
class Source:
    """A labelled data set: the folder `name` in --data, or else `hub`.

    `epochs` over its training rows are the length of a training if the suite has no common `steps`.
    `templates` are its prompts if the base has a text tower; without any, the base's own.
    """

    name: str
    hub: str | None = None
    epochs: int | None = None
    templates: tuple[str, ...] = ()


# Refreshes without the closed form, as in older tables: rows are added to them.
REFRESH = RefreshConfig(seed=0, steps=32, learning_rate=0.06, closed_form=False)


@dataclass(frozen=True)
class Suite:
    """Everything that determines a table's numbers, except data, weights and seeds.

    `generic` sets are in every store and are never trained on; the first is the control of the
    negation table. `targets` are tasks outside the pool. `relative`: lambda is relative to the size
    of the features (see tacl.training.penalties); the published values are not. `trainable` None:
    the base's own. `precision` is that of the passes of linearized training and refresh; ordinary
    training and every evaluation are float32. `strengths` are the values of lambda that were, or
    are, tried.
    """

    name: str
    base: str
    tasks: tuple[Source, ...]
    generic: tuple[Source, ...]
    targets: tuple[Source, ...] = ()
    steps: int | None = 200
    learning_rate: float = 1e-4
    batch: int = 16
    penalty_batch: int = 2
    accumulation: int = 1
    weight_decay: float = 0.1
    warmup_fraction: float = 0.1
    clip: float = 1.0
    strength: float = STRENGTHS["text"]
    strengths: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
    norm: Norm = "l2_squared"
    relative: bool = True
    trainable: tuple[str, ...] | None = None
    precision: Precision = "float32"
    refresh: RefreshConfig = REFRESH

    def config(
        self, task: str, rows: int, seed: int, trainable: tuple[str, ...], **changed: Any
    ) -> TrainConfig:
        """How `task` is trained on `rows` rows; `changed` are fields of the result."""
        names = [one.name for one in fields(TrainConfig) if hasattr(self, one.name)]
        own = {name: getattr(self, name) for name in names}
        own |= {"steps": self._steps(task, rows), "trainable": self.trainable or trainable}
        return TrainConfig(**{**own, "seed": seed, **changed})

    def _steps(self, task: str, rows: int) -> int:
        if self.steps is not None:
            return self.steps
        epochs = next(source.epochs for source in self.tasks if source.name == task)
        if epochs is None:
            raise BadConfig(f"suite {self.name}: {task} has neither steps nor epochs")
        return epochs * math.ceil(rows / self.batch)

    @property
    def names(self) -> list[str]:
        return [source.name for source in self.tasks]

    @property
    def generics(self) -> list[str]:
        return [source.name for source in self.generic]

    def source(self, name: str) -> Source:
        return next(s for s in (*self.tasks, *self.generic, *self.targets) if s.name == name)

    def as_dict(self) -> dict[str, Any]:
        """JSON. Empty templates are left out, as in tables that are older than templates."""
        found = asdict(self, dict_factory=_without_no_templates)
        return found | {"refresh": self.refresh.as_dict()}


def _without_no_templates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name != "templates" or value}


def device() -> str:
    """The device on which tables are made."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def sources(names: str) -> tuple[Source, ...]:
    return tuple(Source(name) for name in names.split())


MINILM = "hf:sentence-transformers/all-MiniLM-L6-v2"
LITE0 = "timm:tf_efficientnet_lite0?size=96"
TEXT8 = sources("ag_news sst2 trec banking77 clinc_domains snips tweet_emotion subjectivity")
TEXT_REST = sources("tweet_hate tweet_offensive tweet_irony cola pros_cons language_id")


def text8() -> Suite:
    """Eight text tasks; targets are tasks that no vector of the pool was trained against."""
    targets = sources("tweet_offensive tweet_irony cola pros_cons language_id sms_spam")
    return Suite("text8", MINILM, TEXT8, sources("imdb"), targets, precision=faster(device()))


def text14() -> Suite:
    return replace(text8(), name="text14", tasks=TEXT8 + TEXT_REST, targets=sources("sms_spam"))


def vision8() -> Suite:
    """Eight picture tasks, heads from class means."""
    tasks = sources("mnist fashion_mnist gtsrb dtd10 rsscn7 fer2013 sign_digits flowers5")
    generic = sources("notmnist omniglot_scripts")
    targets = sources("kannada_mnist medical_mnist quickdraw6 clothing10")
    return Suite("vision8", LITE0, tasks, generic, targets, strength=STRENGTHS["prototype"])


# Epochs of the published runs: about 2,000 steps of 128 rows for every task.
CLIP_TASKS = (
    Source("cars", "tanganke/stanford_cars", 35, CARS),
    Source("dtd", "tanganke/dtd", 76, DTD),
    Source("eurosat", "tanganke/eurosat", 12, EUROSAT),
    Source("gtsrb", "tanganke/gtsrb", 11, GTSRB),
    Source("mnist", "ylecun/mnist", 5, NUMBER),
    Source("resisc45", "tanganke/resisc45", 15, RESISC45),
    Source("sun397", "tanganke/sun397", 14, SUN397),
    Source("svhn", "ufldl-stanford/svhn:cropped_digits", 4, NUMBER),
)


def clip8(architecture: str = "ViT-B-32") -> Suite:
    """The published setting of tauJp (OpenReview 1VwWi6zbxs): un-squared norm, raw lambda.

    Every parameter of the visual tower is trained. lambda is to be chosen from `strengths` on one
    task's validation rows; 0.01 is the middle one. ImageNet, whose head only negation needs, has
    the base's own prompt instead of its 80.
    """
    large = architecture == "ViT-L-14"
    return Suite(
        f"clip8-{architecture}",
        f"open_clip:{architecture}@openai",
        CLIP_TASKS,
        (Source("imagenet", "ILSVRC/imagenet-1k"),),
        steps=None,
        learning_rate=1e-5,
        batch=128,
        penalty_batch=16,
        accumulation=4 if large else 1,
        strength=1e-2,
        strengths=(1e-3, 1e-2, 1e-1),
        norm="l2",
        relative=False,
        trainable=("*",),
    )


SUITES: dict[str, Callable[[], Suite]] = {
    "text8": text8,
    "text14": text14,
    "vision8": vision8,
    "clip8": clip8,
    "clip8-b16": lambda: clip8("ViT-B-16"),
    "clip8-l14": lambda: clip8("ViT-L-14"),
}


def suite(name: str, base: str | None = None, precision: Precision | None = None) -> Suite:
    """The suite of that name, with another base or precision if given. BadConfig for an unknown
    name."""
    if name not in SUITES:
        raise BadConfig(no_such("suite", name, SUITES))
    found = SUITES[name]()
    return replace(found, base=base or found.base, precision=precision or found.precision)
