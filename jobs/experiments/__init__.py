"""Tables of results. Every number comes from finished cells, so a run can be ended and continued.

`cache.py` keeps what was computed, `context.py` is one suite with one seed, `models.py` what is
evaluated, `methods.py` the rows; each file of `tables` defines tables; `runner.py` makes them.
"""
