"""The shapes of other libraries over TACL in memory; each needs its optional extra."""
