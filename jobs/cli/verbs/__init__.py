"""The commands of `tacl`, a file for each group of its help page."""
