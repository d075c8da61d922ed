"""The mathematics of TACL: tensors in, tensors out; no Ray, no SQL, no HTTP."""
