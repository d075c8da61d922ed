"""Models composed of task vectors and coefficients."""
