"""The HTTP API: routes over a service, who may ask what, and what is too much. Knows no Ray.

`app.py` puts it together, `service.py` says what it needs of a cluster, `schemas.py` what travels,
`access.py` who asks, `limits.py` what is refused unread, `pace.py` what waits before Serve's
proxy; a file for each group of routes.
"""
