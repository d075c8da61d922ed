"""TACL behind the interfaces of other libraries; each needs its optional extra."""
