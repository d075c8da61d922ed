"""Forward-mode derivatives carried through unchanged model code.

A `DualTensor` is a pair (primal, tangent). It passes through the model's own `forward` by the
`__torch_function__` protocol; each function called on it is computed by a rule (one file per
family), or by `torch.func.jvp` on that one function, which is counted.
"""

from tacl.dual import activation, arithmetic, attention, constant, linear, norm, shape  # noqa: F401
from tacl.dual.fallback import fallbacks
from tacl.dual.tensor import DualTensor, primal, tangent

__all__ = ["DualTensor", "fallbacks", "primal", "tangent"]
