"""Which tensors of a file are the encoder's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacl.backbone import load_backbone
from tacl.errors import BadCheckpoint
from tacl.interchange.names import library_name, matched
from tests.support import bases


def test_masks_in_older_files_are_no_weights(tmp_path: Path) -> None:
    """Of GPT-2: what transformers leaves out when it loads them."""
    backbone = load_backbone(f"hf:{bases.gpt2(tmp_path)}")
    names = [library_name("hf", name) for name in backbone.encoder.state_dict()]
    masks = [f"h.{layer}.attn.{name}" for layer in (0, 1) for name in ("bias", "masked_bias")]
    for prefix in ("", "transformer."):
        found = matched(backbone, [prefix + name for name in (*names, *masks)])
        assert set(found.aside) == {prefix + mask for mask in masks}
    with pytest.raises(BadCheckpoint, match="unknown"):
        matched(backbone, [*names, "h.0.attn.other"])
