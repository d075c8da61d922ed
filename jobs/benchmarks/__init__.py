"""`tacl bench`: the cost of a step, a sum, an evaluation and a submission, as ratios within a run.

`timing.py` runs contestants in turns and takes medians, `encoders.py` has the encoders by name;
every other file is one bench, or a part of one.
"""
