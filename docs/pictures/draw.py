"""Draws the pictures of docs/explanation: `python docs/pictures/draw.py`, some seconds.

What is drawn of the method is computed: two tasks in the plane, a module of some hundred weights,
and `tacl` itself. The bars are those of results/addition-text8.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

import tacl
from tacl.training.config import RefreshConfig
from tacl.training.loop import Store
from tacl.training.refresh import refresh
from tacl.vectors.params import Params

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results" / "addition-text8.json"
SIDE, STEPS = 60, 300
mpl.use("svg")
plt.rcParams |= {"svg.hashsalt": "tacl", "font.size": 9, "svg.fonttype": "none"}


def scene() -> tuple[tacl.Backbone, Tensor, Tensor, Tensor]:
    """A base model, the inputs and labels of task a, and the inputs of task b."""
    torch.manual_seed(0)
    base = tacl.wrap(nn.Sequential(nn.Linear(2, 48), nn.GELU(), nn.Linear(48, 16)))
    a = 0.7 * torch.randn(160, 2) + torch.tensor([-2.0, 1.0])
    b = 0.7 * torch.randn(160, 2) + torch.tensor([2.0, -1.0])
    return base, a, (a[:, 0] + a[:, 1] > -1).long(), b


def heat(base: tacl.Backbone, tau: Params, own: Tensor) -> Tensor:
    """|J(x) tau| over the plane, relative to its mean over the task's own inputs: [SIDE, SIDE]."""
    line = torch.linspace(-4.5, 4.5, SIDE)
    plane = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).reshape(-1, 2)
    model = tacl.linearize(base)
    model.load_tau(tau)
    with torch.no_grad():
        size_N, own_N = (model(x)[1].norm(dim=-1) for x in (plane, own))
    return (size_N / own_N.mean()).reshape(SIDE, SIDE)


def interference() -> None:
    """What the vector of task a does over the plane: trained alone, refreshed, penalised."""
    base, a, labels, b = scene()
    head = tacl.prototype_head(tacl.features(base, a), labels, ("one", "two"))
    how = {"steps": STEPS, "learning_rate": 1e-2}
    alone = tacl.train(base, (a, labels), head, **how).to_params()
    penalised = tacl.train(base, (a, labels), head, against=[b], **how).to_params()
    stores = [Store(name, list(x), 1.0) for name, x in (("a", a), ("b", b))]
    config = RefreshConfig(seed=0, steps=STEPS, samples=160, most_change=1.0)
    found = refresh(tacl.linearize(base), base, alone, stores[0], stores[1:], config)
    print(found.reason)
    later = found.tau
    panels = {
        "trained alone": alone,
        "refreshed when b arrives,\nwithout labels": later,
        "trained with the penalty\non inputs of b": penalised,
    }
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.1), layout="constrained")
    for axis, (title, tau) in zip(axes, panels.items(), strict=True):
        extent = (-4.5, 4.5, -4.5, 4.5)
        shown = axis.imshow(
            heat(base, tau, a), cmap="magma_r", vmin=0, vmax=2, origin="lower", extent=extent
        )
        axis.scatter(*a[:60].T, s=5, c="tab:blue", label="inputs of a")
        axis.scatter(*b[:60].T, s=5, c="tab:green", label="inputs of b")
        axis.set(title=title, xticks=[], yticks=[])
    axes[0].legend(loc="lower left", fontsize=7, framealpha=0.9)
    figure.colorbar(shown, ax=axes, label="|J(x) τ|, own inputs = 1", shrink=0.8)
    save("interference")


def sums() -> None:
    """One feature of one input as the coefficient of a vector grows: tangent model and ordinary."""
    base, a, labels, _ = scene()
    head = tacl.prototype_head(tacl.features(base, a), labels, ("one", "two"))
    tau = tacl.train(base, (a, labels), head, steps=STEPS, learning_rate=1e-2).to_params()
    factors = torch.linspace(-1, 4, 41)
    model = tacl.linearize(base)
    model.load_tau(tau)
    with torch.no_grad():
        feature_1D, tangent_1D = model(a[:1])
        at = int((tangent_1D[0]).abs().argmax())
        straight = feature_1D[0, at] + factors * tangent_1D[0, at]
        bent = [_moved(base, tau, float(c), a[:1])[0, at] for c in factors]
    _, axis = plt.subplots(figsize=(4.6, 2.9), layout="constrained")
    axis.plot(factors, straight, label="linearized: f(x) + c J(x) τ")
    axis.plot(factors, bent, "--", label="ordinary: f(x; θ0 + c τ)")
    for factor, name in ((0, "base model"), (1, "τ"), (2, "τ + τ")):
        axis.axvline(factor, color="0.85", zorder=0)
        axis.text(factor, 1.01, name, transform=axis.get_xaxis_transform(), ha="center")
    axis.set(xlabel="coefficient c", ylabel="one feature of one input")
    axis.legend(fontsize=8)
    save("sums")


def _moved(base: tacl.Backbone, tau: Params, factor: float, x: Tensor) -> Tensor:
    moved = {name: p + factor * tau[name] for name, p in base.encoder.named_parameters()}
    return torch.func.functional_call(base.encoder, moved, x)


def measured() -> None:
    """Eight text tasks: bars of the table, mean over seeds."""
    names = {
        "zero-shot": "base model alone",
        "linear": "sum of linear vectors",
        "ties": "TIES",
        "tsv-m": "TSV-M",
        "linear+refresh": "linear vectors, each refreshed",
        "taujp": "sum of tauJp vectors",
        "frozen-logistic": "classifier on the frozen base",
        "frozen-inner-logistic": "the same, inner blocks too",
        "mixed-longer+inner": "sum of tauJp vectors, the default",
        "individual": "a model for each task",
    }
    summary = json.loads(RESULTS.read_text())["summary"]
    _, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    values = [100 * summary[name]["absolute"]["mean"] for name in names]
    bars = axis.barh(list(names.values()), values, color="tab:blue")
    axis.bar_label(bars, fmt="%.1f", padding=3)
    axis.invert_yaxis()
    axis.set(xlim=(0, 100), xlabel="mean test accuracy over eight tasks, %")
    save("measured")


def save(name: str) -> None:
    plt.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close()


if __name__ == "__main__":
    interference()
    sums()
    measured()
