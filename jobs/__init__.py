"""Verbs: parse, call, print. `tacl VERB` is `jobs.cli.main`."""
