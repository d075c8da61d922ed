"""The page at `/`: files for a browser, without a build step, and their content security policy.

Everything comes from this server and no script writes markup, so the policy forbids the rest.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Files(StaticFiles):
    """Files with the page's policy; a browser checks each time whether they have changed."""

    def file_response(self, *args, **kwargs) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update({**HEADERS, "cache-control": "no-cache"})
        return response


def serve(app: FastAPI) -> None:
    """Add `/` and `/page/...` to the application."""

    files = Files(directory=STATIC)

    @app.get("/", include_in_schema=False)
    async def home(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    app.mount("/page", files)
