"""Task vectors: named tensors, as files."""

from tacl.vectors.blocks import Block, Dense, LowRank, Storage
from tacl.vectors.params import Params
from tacl.vectors.vector import Regime, TaskVector

__all__ = ["Block", "Dense", "LowRank", "Params", "Regime", "Storage", "TaskVector"]
