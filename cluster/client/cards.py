"""Parts that all cards share: names of base models, percentages and commands."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from cluster.domain.base import Base
from tacl.interchange import hub
from tacl.spec import BaseSpec, is_path


def base_name(base: Base) -> str:
    """The name of the base model, without folders of the machine that it was read on."""
    spec = BaseSpec.parse(base.spec)
    name = Path(spec.name).name if _is_here(spec) else spec.name
    return str(replace(spec, name=name, weights=spec.weights and Path(spec.weights).name))


def base_on_hub(base: Base) -> str | None:
    """OWNER/NAME of a base model, for the metadata that hubs read; None if it is not of a hub."""
    spec = BaseSpec.parse(base.spec)
    return spec.name if spec.scheme == "hf" and not _is_here(spec) else None


def _is_here(spec: BaseSpec) -> bool:
    return is_path(spec.name) or spec.is_folder


def percent(share: float | None) -> str:
    return "not measured" if share is None else f"{100 * share:.1f}"


def shell(*lines: list[str]) -> str:
    return "```sh\n" + "\n".join(map(shlex.join, lines)) + "\n```"


def fetching(out: str) -> str:
    """How to download the files from a hub; empty if `out` is a folder."""
    if not hub.is_repository(out):
        return ""
    name = hub.Repository.parse(out).name
    told = shell(["hf", "download", name, "--local-dir", name.partition("/")[2]])
    return f"{told}\n\nThen, in that folder:\n\n"


def importing(out: str, task: str) -> str:
    """The command that imports the files into another home."""
    return shell(["tacl", "import", task, out, "--data", "DATA"])
