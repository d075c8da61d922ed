"""Tiny encoders of each family, with random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support import bases


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="session")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import timm

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("timm") / "weights.safetensors"
    save_file(timm.create_model("tf_efficientnet_lite0").state_dict(), path)
    return path
