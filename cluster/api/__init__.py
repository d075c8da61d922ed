"""The HTTP API: routes over a `Service`, with authentication, roles and limits. Imports no Ray.

`app.py` builds the application, `service.py` declares what it needs of a cluster, `schemas.py` the
bodies, `access.py` callers and roles, `limits.py` what is refused before it is decoded, `pace.py`
how requests wait before Serve's proxy. Each group of routes has a file.
"""
