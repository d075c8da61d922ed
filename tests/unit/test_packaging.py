"""What a person installs: the wheel's content, and versions that stand in two files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import tacl
from tests.support.places import ROOT

ROOMS = ("tacl", "cluster", "jobs")


def test_the_wheel_has_every_module_and_what_they_read_and_nothing_else(tmp_path: Path) -> None:
    """Built from a copy: a build leaves folders behind."""
    source = tmp_path / "source"
    generated = shutil.ignore_patterns("__pycache__")
    for room in (*ROOMS, "tests"):
        shutil.copytree(ROOT / room, source / room, ignore=generated)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    done = subprocess.run([*build, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"tacl_compose-{tacl.__version__}-py3-none-any.whl"
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    read = [
        *(f"tacl/embedded/{name}" for name in ("encoder.json", "encoder.safetensors")),
        *("tacl/embedded/encoder.record.json", "tacl/embedded/merges.txt.gz"),
        *("tacl/py.typed", "cluster/py.typed"),
    ]
    pages = (ROOT / "cluster/api/page/static").rglob("*")
    modules = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    files = [path for path in (*modules, *pages) if path.is_file()]
    assert found == {*read, *(str(path.relative_to(ROOT)) for path in files)}


def test_one_version_of_ruff() -> None:
    (pinned,) = re.findall(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.M)
    (hook,) = re.findall(r"rev: v(.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.M)
    assert hook == pinned


def test_an_environment_that_was_left_half_made_is_made_again(tmp_path: Path) -> None:
    """As by a system whose Python lacks ensurepip until its package for that is installed."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    binaries = tmp_path / ".venv/bin"
    binaries.mkdir(parents=True)
    works = tmp_path / "works"
    works.write_text(f'#!/bin/sh\n[ "$2" != venv ] || touch {binaries}/pip {tmp_path}/made\n')
    works.chmod(0o700)
    for name in ("python", "uv"):
        (binaries / name).symlink_to(works)
    subprocess.run(["make", "install", f"PYTHON={works}"], cwd=tmp_path, check=True)
    assert (tmp_path / "made").exists()
