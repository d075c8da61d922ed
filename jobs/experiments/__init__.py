"""Tables: every number from finished cells, so that a run may end anywhere and goes on.

`cells.py` keeps what was computed, `bench.py` is one suite with one seed, `models.py` what is
evaluated, `methods.py` the columns; a file each for the tables; `run.py` makes one.
"""
