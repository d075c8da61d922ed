"""The formats that a model is written in, by name; whoever names one imports no library for it."""

from __future__ import annotations

from typing import Literal

Format = Literal["safetensors", "open_clip", "transformers", "timm"]
