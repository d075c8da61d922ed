"""Users' data: read, checked, split and sampled before anything is stored."""
