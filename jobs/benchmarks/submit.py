"""From `submit` to `ready`: the time of the training, and of the rest by part.

A cluster of its own, the embedded base model, one worker with DeepSpeed, generated pictures: like a
user's first minutes with TACL. Every run has a new process, as the cluster rests before it, and
imports torch and DeepSpeed. The bare import of the two is measured in separate processes, and does
not count as overhead.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster.client.client import Client
from jobs.benchmarks.timing import Say
from jobs.console.own_cluster import own_cluster
from tacl import embedded

ROWS, STEPS, CPUS = 400, 50, 2
POLL = 0.1  # seconds
BARE = (
    "import time; t = time.perf_counter(); import torch, deepspeed; print(time.perf_counter() - t)"
)


def bench_submit(runs: int, say: Say) -> dict[str, Any]:
    """Medians over `runs` tasks, submitted one after another, after one that is not counted."""
    bare, found = [], []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        own_cluster(Path(folder) / "home", lambda new: new.up("embedded", cpus=CPUS)) as one,
    ):
        for run in range(runs + 1):
            say(run, runs + 1)
            bare.append(bare_imports())
            found.append(one_run(one, f"task{run}", Path(folder)))
    imports = statistics.median(bare[1:])
    parts = {name: statistics.median(run[name] for run in found[1:]) for name in found[0]}
    total = sorted(run["total"] - run["training"] - imports for run in found[1:])
    return {
        "runs": runs,
        "steps": STEPS,
        "total_s": parts.pop("total"),
        "training_s": parts.pop("training"),
        "bare_imports_s": imports,
        "overhead_s": statistics.median(total),
        "spread_s": {"overhead": total[-1] - total[0]},
        "parts_s": parts,
    }


def one_run(client: Client, name: str, folder: Path) -> dict[str, float]:
    """Seconds of each part, by this machine's clock."""
    data = folder / name
    embedded.write_parquet("shapes", data, ROWS, ROWS // 4, seed=len(client.vectors()))
    begun = time.time()
    client.submit(name, str(data), steps=STEPS)
    client.wait(name, poll=POLL)
    seen = time.time()
    client.wait(poll=POLL)  # so that remaining work does not disturb the next run
    at = {event.kind: event.at for event in reversed(client.logs(name))}
    metrics = client.vectors(name)[0].metrics
    parts = "seconds_ready", "seconds_trained", "seconds"
    ready, trained, worked = (metrics[part] for part in parts)
    return {
        "total": seen - begun,
        "training": trained,
        "check and store": at["submitted"] - begun,
        "place": at["started"] - at["submitted"],
        "process and its imports": at["published"] - at["started"] - worked,
        "encoder, data, head, engine": ready,
        "validate, measure, store": worked - ready - trained,
        "notice": seen - at["published"],
    }


def bare_imports() -> float:
    """Seconds of `import torch, deepspeed` in a new process."""
    found = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True)
    return float(found.stdout.split()[-1])
