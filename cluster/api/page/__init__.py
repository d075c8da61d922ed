"""The page at `/`: files for a browser, without a build step, and the policy they are served under.

Everything comes from this server and nothing is written into the markup by scripts, so the policy
forbids the rest. Plots are drawn by the bundle that the plotly package brings.
"""

from __future__ import annotations

import gzip
import importlib.util
from functools import cache
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
# Plotly fills an empty style element through its object model; only an empty one is let in.
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
# The bundle brings a style for maps along, which this page draws none of.
MAP_STYLE = "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {EMPTY_STYLE} {MAP_STYLE}",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Files(StaticFiles):
    """Files with the page's policy; a browser asks each time whether they have changed."""

    def file_response(self, *args, **kwargs) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update({**HEADERS, "cache-control": "no-cache"})
        return response


def serve(app: FastAPI) -> None:
    """Adds `/` and `/page/...` to the API's app."""

    @app.get("/page/plotly.min.js", include_in_schema=False)
    def plots(request: Request) -> Response:
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        headers = {**HEADERS, "cache-control": "max-age=86400", "vary": "accept-encoding"}
        headers |= {"content-encoding": "gzip"} if zipped else {}
        return Response(_plotly(zipped), media_type="text/javascript", headers=headers)

    files = Files(directory=STATIC)

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    app.mount("/page", files)


@cache
def _plotly(zipped: bool) -> bytes:
    """4.8 MB, or 1.5 MB on the way to a phone."""
    found = importlib.util.find_spec("plotly")
    assert found is not None  # a dependency
    assert found.origin is not None
    path = Path(found.origin).parent / "package_data" / "plotly.min.js"
    return gzip.compress(path.read_bytes(), mtime=0) if zipped else path.read_bytes()
