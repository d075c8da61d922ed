"""The base model at theta0 with tau beside it: linearized, ordinary, mixed."""
