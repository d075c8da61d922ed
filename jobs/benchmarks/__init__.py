"""`tacl bench`: what a step, a sum, an evaluation and a submission cost, as ratios of one run.

`timing.py` takes turns and takes medians, `encoders.py` has the encoders by name; every other file
is one bench, or a part of one.
"""
