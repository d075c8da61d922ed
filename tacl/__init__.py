"""The mathematics of TACL: tensors in, tensors out; no Ray, no SQL, no HTTP."""

__version__ = "0.1.0"
