"""Programs that parse, call and print. `tacl VERB` is `jobs.cli.main`."""
