"""Pre-trains the embedded base model, contrastively, on captioned pictures generated from a seed.

`tacl pretrain` writes encoder.safetensors (float16) and encoder.record.json. The loss is CLIP's
(arXiv 2103.00020), over the different captions of a batch.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from torch import Tensor

from cluster.runtime.processors import cpus
from jobs.console.progress import counting
from tacl.embedded import model as embedded
from tacl.embedded.catalogue import captioned, classes, generate, tasks
from tacl.embedded.words import Words
from tacl.errors import BadConfig
from tacl.training.config import schedule

LIBRARIES = ("torch", "open_clip_torch", "numpy", "pillow", "matplotlib")
PART = 1024  # pictures that one process renders at a time
Count = Callable[[int, int], None]  # called with (done, total)
TEMPLATES = ("{}", "a {}", "a photo of a {}.", "a picture of a {}.", "this is a {}.")


@dataclass(frozen=True)
class PretrainConfig:
    """All settings that determine the weights, besides the machine and the versions of libraries.

    One thread by default: sums are then taken in one order, and two threads that other work
    disturbs are slower than one.
    """

    steps: int = 800
    seed: int = 0
    rows: int = 40960  # different pictures
    batch: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    warmup: float = 0.05  # fraction of the steps
    threads: int = 1
    held_out: int = 500  # rows of each task for the zero-shot accuracy


@dataclass(frozen=True, kw_only=True)
class PretrainRecord(PretrainConfig):
    """The settings of a pre-training, and its results."""

    losses: list[float]  # of about fifty steps
    last_loss: float  # mean over the last twenty steps
    zero_shot: dict[str, float]  # accuracy by task
    seconds: float
    cpu_seconds: float  # without rendering
    versions: dict[str, str]
    sha256: str  # of the weights


def render(rows: int, seed: int, count: Count) -> tuple[Tensor, list[str]]:
    """The captioned pictures uint8 [rows, H, W, 3]; row i does not depend on the process."""
    starts = range(0, rows, PART)
    sizes = [min(PART, rows - start) for start in starts]
    images, captions = [], []
    processes, spawn = min(cpus(), len(sizes)), multiprocessing.get_context("spawn")
    deaf = signal.signal, (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends this process, with no trace
    with ProcessPoolExecutor(processes, spawn, *deaf) as pool:
        for part, texts in pool.map(captioned, sizes, [seed] * len(sizes), starts):
            images.append(part)
            captions.extend(texts)
            count(len(captions), rows)
    return torch.from_numpy(np.concatenate(images)), captions


def batches(rows: int, config: PretrainConfig) -> Iterator[Tensor]:
    """Row numbers [batch] of every step: one permutation after another, from the seed alone."""
    generator = torch.Generator().manual_seed(config.seed)
    pool = torch.empty(0, dtype=torch.int64)
    for _ in range(config.steps):
        while len(pool) < config.batch:
            pool = torch.cat([pool, torch.randperm(rows, generator=generator)])
        yield pool[: config.batch]
        pool = pool[config.batch :]


@dataclass(frozen=True)
class Captions:
    """All different captions as tokens, and for each picture the index of its caption."""

    rows_N: Tensor
    tokens_TCL: Tensor  # every different caption, in every template

    @classmethod
    def of(cls, captions: Sequence[str], words: Words) -> Captions:
        different, rows_N = np.unique(captions, return_inverse=True)
        texts = [[template.format(c) for c in different] for template in TEMPLATES]
        tokens: list[Tensor] = [words(text) for text in texts]
        return cls(torch.from_numpy(rows_N), torch.stack(tokens))

    def batch(self, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """These rows' different captions [U, L], in random templates, and the index of each [N]."""
        different_U, which_N = self.rows_N[rows].unique(return_inverse=True)
        templates_U = torch.randint(len(TEMPLATES), different_U.shape, generator=generator)
        return self.tokens_TCL[templates_U, different_U], which_N


def contrastive(model: CLIP, images_NHWC: Tensor, tokens_UL: Tensor, which_N: Tensor) -> Tensor:
    """Symmetric cross-entropy between pictures and the different captions among them.

    A picture has one caption (`which_N`), a caption one or more pictures, which share its target.
    """
    images_ND = model.encode_image(embedded.pixels(images_NHWC), normalize=True)
    texts_UD = model.encode_text(tokens_UL, normalize=True)
    logits_NU = model.logit_scale.exp() * images_ND @ texts_UD.T
    shown_UN = F.one_hot(which_N, len(tokens_UL)).T.float()
    targets_UN = shown_UN / shown_UN.sum(-1, keepdim=True)
    return (F.cross_entropy(logits_NU, which_N) + F.cross_entropy(logits_NU.T, targets_UN)) / 2


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
    model: CLIP, images: Tensor, captions: Captions, config: PretrainConfig, count: Count
) -> list[float]:
    """Train the model in place; returns the loss of every step."""
    adam, losses = optimizer(model, config), []
    generator = torch.Generator().manual_seed(config.seed)
    for step, rows in enumerate(batches(len(images), config)):
        for group in adam.param_groups:
            group["lr"] = schedule(config.learning_rate, step, config.steps, config.warmup)
        loss = contrastive(model, images[rows], *captions.batch(rows, generator))
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        with torch.no_grad():
            model.logit_scale.clamp_(max=math.log(100))
        losses.append(loss.item())
        count(step + 1, config.steps)
    return losses


def zero_shot(weights: Path, config: PretrainConfig) -> dict[str, float]:
    """Zero-shot accuracy of the written weights on each embedded task, on rows no training uses."""
    model, words = embedded.load(weights)
    accuracy = {}
    for task in tasks():
        images, labels = generate(task, config.held_out, seed=config.seed + 1_000_003)
        accuracy[task] = embedded.zero_shot(
            model, words, torch.from_numpy(images), torch.from_numpy(labels), classes(task)
        )
    return accuracy


def pretrain(config: PretrainConfig, out: Path) -> PretrainRecord:
    """Render the pictures, train the encoder and write it into the folder `out`; its record.

    The same configuration gives the same weights on the same machine and library versions. Raises
    BadConfig, before half an hour of work, if nothing may be written into `out`.
    """
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise BadConfig(f"{out} is a folder that you may not write into; name another")
    start, start_cpu = time.perf_counter(), time.process_time()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    model, words = embedded.build(), embedded.words()
    model.visual.to(memory_format=torch.channels_last)  # a fifth faster on a CPU
    with counting("drawing") as count:
        images, captions = render(config.rows, config.seed, count)
    with counting("training") as count:
        losses = fit(model.train(), images, Captions.of(captions, words), config, count)
    weights = out / embedded.WEIGHTS.name
    embedded.save(model, weights)
    record = PretrainRecord(
        **asdict(config),
        losses=[round(loss, 4) for loss in losses[:: max(1, config.steps // 50)]],
        last_loss=round(float(np.mean(losses[-20:])), 4),
        zero_shot=zero_shot(weights, config),
        seconds=round(time.perf_counter() - start, 1),
        cpu_seconds=round(time.process_time() - start_cpu, 1),
        versions={"python": platform.python_version(), **{n: version(n) for n in LIBRARIES}},
        sha256=hashlib.sha256(weights.read_bytes()).hexdigest(),
    )
    (out / embedded.RECORD.name).write_text(json.dumps(asdict(record), indent=2) + "\n")
    return record
