"""The published prompts of CLIP (openai/CLIP, data/prompts.md) for the tasks of clip8.

SVHN is not among them; as in the published code of task vectors it has those of MNIST.
"""

from __future__ import annotations

from itertools import product

ARTICLES = ("", "a ", "the ")
TEXTURES = ("texture", "pattern", "thing", "object")
SIGHTS = ("zoomed in", "centered", "close up")
VIEWS = (
    "satellite imagery",
    "aerial imagery",
    "satellite photo",
    "aerial photo",
    "satellite view",
    "aerial view",
)

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
