"""Tables: every number from finished cells, so that a run may end anywhere and goes on.

`cache.py` keeps what was computed, `context.py` is one suite with one seed, `models.py` what is
evaluated, `methods.py` the rows; a file each in `tables`; `runner.py` makes one.
"""
