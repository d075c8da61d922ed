"""Compositions that are requested from a coordinator, and computed."""

from __future__ import annotations

from typing import Any

from cluster.domain.base import BlobRef
from cluster.domain.compositions import CompositionMethod, Fit
from cluster.domain.status import CompositionRun
from cluster.storage.samples import store_rows
from tests.support.fakes import ADMIN, Scene, asks

TIES, ATLAS = CompositionMethod(method="ties"), CompositionMethod(method="atlas")


def rows(scene: Scene, text: str = "shot") -> BlobRef:
    return store_rows(scene.home.blobs(), [f"{text} one", f"{text} two"], [0, 1])


def fitted(scene: Scene) -> CompositionMethod:
    fit = Fit(classes=("yes", "no"), shots=rows(scene), held_out=rows(scene, "held"))
    return CompositionMethod(method="atlas", fit=fit)


def make(
    scene: Scene,
    terms: str = "+digits +shapes",
    user: str = "alice",
    making: CompositionMethod = TIES,
    request_id: str = "one",
    viewer: str | None = None,
) -> CompositionRun:
    context = asks(request_id, viewer)
    return scene.coordinator.start_composition(context, user, terms.split(), making)


def made(scene: Scene, terms: str = "+digits +shapes", **changes: Any) -> CompositionRun:
    found = make(scene, terms, **changes)
    scene.settle()
    user = changes.get("user", "alice")
    return scene.coordinator.composition_run(ADMIN, user, found.run_id)
