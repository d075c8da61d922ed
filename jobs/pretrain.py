"""Pre-train the embedded encoder: contrastive, from a seed, on captioned pictures it generates.

    python -m jobs.pretrain --out DIR [--steps N] [--seed S] [--json]

writes encoder.safetensors (float16) and encoder.record.json. The loss is CLIP's (arXiv 2103.00020),
with rows of equal captions counted as matches of each other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from tacl.embedded import model as embedded
from tacl.embedded.captions import captioned
from tacl.embedded.catalogue import classes, generate, tasks

SHARD = 1024  # pictures that one process renders at a time


@dataclass(frozen=True)
class PretrainConfig:
    """All that decides the weights, beside the machine and the versions of the libraries.

    One thread by default: sums are taken in one order, and two threads that other work disturbs
    are slower than one.
    """

    steps: int = 1500
    seed: int = 0
    rows: int = 49152  # different pictures
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    warmup: float = 0.05  # fraction of the steps
    threads: int = 1
    held_out: int = 500  # rows of each task for the zero-shot accuracy


def render(rows: int, seed: int, progress: Progress) -> tuple[Tensor, list[str]]:
    """The captioned pictures uint8 [rows, H, W, 3]; row i is the same however many processes draw."""
    starts = range(0, rows, SHARD)
    sizes = [min(SHARD, rows - start) for start in starts]
    bar = progress.add_task("drawing", total=rows, note="")
    images, captions = [], []
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(sizes)), multiprocessing.get_context("spawn")) as pool:
        for part, texts in pool.map(captioned, sizes, [seed] * len(sizes), starts):
            images.append(part)
            captions.extend(texts)
            progress.advance(bar, len(texts))
    return torch.from_numpy(np.concatenate(images)), captions


def batches(rows: int, config: PretrainConfig) -> Iterator[Tensor]:
    """Row numbers [batch] of every step: permutations one after another, from the seed alone."""
    generator = torch.Generator().manual_seed(config.seed)
    pool = torch.empty(0, dtype=torch.int64)
    for _ in range(config.steps):
        while len(pool) < config.batch:
            pool = torch.cat([pool, torch.randperm(rows, generator=generator)])
        yield pool[: config.batch]
        pool = pool[config.batch :]


def contrastive(model: CLIP, images_NHWC: Tensor, tokens_NL: Tensor) -> Tensor:
    """Symmetric cross-entropy between pictures and captions; equal captions share the target."""
    images_ND = model.encode_image(embedded.pixels(images_NHWC), normalize=True)
    texts_ND = model.encode_text(tokens_NL, normalize=True)
    logits_NN = model.logit_scale.exp() * images_ND @ texts_ND.T
    same_NN = (tokens_NL[:, None] == tokens_NL[None]).all(-1).float()
    targets_NN = same_NN / same_NN.sum(-1, keepdim=True)
    return (F.cross_entropy(logits_NN, targets_NN) + F.cross_entropy(logits_NN.T, targets_NN)) / 2


def rate(step: int, config: PretrainConfig) -> float:
    """Linear warm-up, then a cosine to zero."""
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    return (
        config.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (config.steps - warm)))
    )


def optimizer(model: CLIP, config: PretrainConfig) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98))


def fit(
    model: CLIP, images: Tensor, tokens: Tensor, config: PretrainConfig, progress: Progress
) -> list[float]:
    """Train the model in place; the loss of every step."""
    adam, losses = optimizer(model, config), []
    bar = progress.add_task("training", total=config.steps, note="")
    for step, rows in enumerate(batches(len(images), config)):
        for group in adam.param_groups:
            group["lr"] = rate(step, config)
        loss = contrastive(model, images[rows], tokens[rows])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        with torch.no_grad():
            model.logit_scale.clamp_(max=math.log(100))
        losses.append(loss.item())
        progress.update(bar, advance=1, note=f"loss {losses[-1]:.3f}")
    return losses


def zero_shot(weights: Path, config: PretrainConfig) -> dict[str, float]:
    """Zero-shot accuracy of the written weights per embedded task, on rows no training sees."""
    model, words = embedded.load(weights)
    accuracy = {}
    for task in tasks():
        images, labels = generate(task, config.held_out, seed=config.seed + 1_000_003)
        accuracy[task] = embedded.zero_shot(
            model, words, torch.from_numpy(images), torch.from_numpy(labels), classes(task)
        )
    return accuracy


def pretrain(config: PretrainConfig, out: Path, console: Console | None = None) -> dict[str, Any]:
    """Draw, train and write the encoder into the folder `out`; its training record.

    The same configuration gives the same weights on the same machine and library versions.
    """
    start = time.perf_counter()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    model, words = embedded.build(), embedded.tokenizer()
    columns = (
        *Progress.get_default_columns(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        images, captions = render(config.rows, config.seed, progress)
        losses = fit(model.train(), images, words(captions), config, progress)
    out.mkdir(parents=True, exist_ok=True)
    weights = out / embedded.WEIGHTS.name
    embedded.save(model, weights)
    record = {
        **asdict(config),
        "losses": [round(loss, 4) for loss in losses[:: max(1, config.steps // 50)]],
        "last_loss": round(float(np.mean(losses[-20:])), 4),
        "zero_shot": zero_shot(weights, config),
        "seconds": round(time.perf_counter() - start, 1),
        "versions": {"python": platform.python_version()}
        | {
            name: version(name)
            for name in ("torch", "open_clip_torch", "numpy", "pillow", "matplotlib")
        },
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
    }
    (out / embedded.RECORD.name).write_text(json.dumps(record, indent=2) + "\n")
    return record


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobs.pretrain", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and record")
    parser.add_argument("--steps", type=int, default=PretrainConfig.steps)
    parser.add_argument("--seed", type=int, default=PretrainConfig.seed)
    parser.add_argument("--json", action="store_true", help="print the training record as JSON")
    asked = parser.parse_args()
    record = pretrain(PretrainConfig(steps=asked.steps, seed=asked.seed), asked.out)
    if asked.json:
        print(json.dumps(record))
    else:
        for task, accuracy in record["zero_shot"].items():
            print(f"{task:10s} zero-shot {accuracy:.3f} of {len(classes(task))} classes")
        print(f"wrote {asked.out} in {record['seconds']:.0f} s, sha256 {record['sha256'][:12]}")


if __name__ == "__main__":
    main()
