"""The names of the formats that a model is written in; importing them needs no other library."""

from __future__ import annotations

from typing import Literal

Format = Literal["safetensors", "open_clip", "transformers", "timm"]
