"""A Hugging Face hub in this process: repositories of commits, tokens, large files, faults."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from huggingface_hub import constants

from tests.support.listening import serving

TOKEN = "hf_of_ann"  # may write below ann/ and read all


@dataclass
class Repo:
    private: bool = True
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # oldest first
    claims: dict[str, int] = field(default_factory=dict)  # sizes reported in place of the true ones

    def commit(self, files: dict[str, bytes]) -> str:
        parts = [f"{len(self.commits)}", *(f"{n} {len(b)}" for n, b in sorted(files.items()))]
        sha = hashlib.sha1("\n".join(parts).encode()).hexdigest()
        self.commits[sha] = files
        return sha

    def find(self, revision: str) -> str | None:
        if revision == "main" and self.commits:
            return list(self.commits)[-1]
        return revision if revision in self.commits else None


@dataclass
class Hub:
    """`large`: contents of large files, by sha256; `fetched`: paths that were requested."""

    address: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)

    def put(self, name: str, files: dict[str, bytes], private: bool = False) -> str:
        """Commit as another user; returns the commit."""
        return self.repos.setdefault(name, Repo(private)).commit(files)

    def files(self, name: str) -> dict[str, bytes]:
        return list(self.repos[name].commits.values())[-1]


@contextmanager
def running(patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub that huggingface_hub calls, by HF_ENDPOINT; nobody is logged in."""
    hub = Hub()
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        patch.delenv(name, raising=False)
    with serving(application(hub)) as address:
        hub.address = address.rstrip("/")
        patch.setattr(constants, "ENDPOINT", hub.address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", _template(hub.address))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the fake has no Xet store
        patch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
        yield hub


def _template(address: str) -> str:
    return address + "/{repo_id}/resolve/{revision}/{filename}"


def application(hub: Hub) -> FastAPI:
    app = FastAPI()
    _serve_owners(app, hub)
    _serve_readers(app, hub)
    _serve_commits(app, hub)
    return app


def _serve_owners(app: FastAPI, hub: Hub) -> None:
    """Serve the caller's identity, and new repositories."""

    @app.api_route("/", methods=["GET", "HEAD"])
    def root() -> str:
        return "a hub"

    @app.get("/api/whoami-v2")
    def whoami(request: Request) -> Any:
        return {"name": "ann", "type": "user", "orgs": []} if known(request) else refused(401)

    @app.post("/api/validate-yaml")
    def validate() -> Any:
        return {"errors": [], "warnings": []}

    @app.post("/api/repos/create")
    async def create(request: Request) -> Any:
        asked = await request.json()
        name = f"{asked['organization']}/{asked['name']}"
        if not known(request) or asked["organization"] != "ann":
            return refused(403 if known(request) else 401)
        made = {"url": f"{hub.address}/{name}"}
        if name in hub.repos:
            return Response(json.dumps(made), 409)
        hub.repos[name] = Repo(asked.get("visibility") == "private" or bool(asked.get("private")))
        hub.repos[name].commit({".gitattributes": b""})
        return made


def _serve_readers(app: FastAPI, hub: Hub) -> None:
    """Serve information on repositories, and their files."""

    @app.get("/api/models/{owner}/{name}")
    @app.get("/api/models/{owner}/{name}/revision/{revision}")
    def info(request: Request, owner: str, name: str, revision: str = "main") -> Any:
        repo = visible(hub, request, f"{owner}/{name}")
        if repo is None:
            return refused(404 if known(request) else 401, "RepoNotFound")
        if (sha := repo.find(revision)) is None:
            return refused(404, "RevisionNotFound")
        sizes = {n: repo.claims.get(n, len(data)) for n, data in repo.commits[sha].items()}
        files = [{"rfilename": n, "size": size, "blobId": "b"} for n, size in sizes.items()]
        about = {"id": f"{owner}/{name}", "modelId": f"{owner}/{name}", "sha": sha}
        return about | {"private": repo.private, "siblings": files, "tags": [], "downloads": 0}

    @app.get("/api/models/{owner}/{name}/tree/{revision}")
    def tree(request: Request, owner: str, name: str, revision: str) -> Any:
        repo = visible(hub, request, f"{owner}/{name}")
        assert repo is not None
        files = repo.commits[repo.find(revision) or ""]
        return [
            {"type": "file", "path": path, "size": len(data), "oid": "b"}
            for path, data in files.items()
        ]

    @app.api_route("/{owner}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
    def resolve(request: Request, owner: str, name: str, revision: str, path: str) -> Any:
        repo = visible(hub, request, f"{owner}/{name}")
        sha = repo and repo.find(revision)
        if repo is None or sha is None:
            return refused(404, "RepoNotFound")
        if path not in repo.commits[sha]:
            return refused(404, "EntryNotFound")
        hub.fetched.append(path)
        data = repo.commits[sha][path]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": sha}
        return Response(data, headers=headers, media_type="application/octet-stream")


def _serve_commits(app: FastAPI, hub: Hub) -> None:
    """Serve uploads, where large files are uploaded separately."""

    @app.post("/api/models/{owner}/{name}/preupload/{revision}")
    async def preupload(request: Request) -> Any:
        asked = (await request.json())["files"]
        return {"files": [{"path": f["path"], "shouldIgnore": False, **how(f)} for f in asked]}

    @app.post("/{owner}/{name}.git/info/lfs/objects/batch")
    async def batch(request: Request) -> Any:
        asked = (await request.json())["objects"]
        there = {"header": {}}
        return {
            "transfer": "basic",
            "objects": [
                {**o, "actions": {"upload": {"href": f"{hub.address}/large/{o['oid']}", **there}}}
                for o in asked
            ],
        }

    @app.put("/large/{oid}")
    async def large(request: Request, oid: str) -> Any:
        hub.large[oid] = await request.body()
        assert hashlib.sha256(hub.large[oid]).hexdigest() == oid
        return Response()

    @app.post("/api/models/{owner}/{name}/commit/{revision}")
    async def commit(request: Request, owner: str, name: str, revision: str) -> Any:
        if not known(request):
            return refused(401)
        repo = hub.repos[f"{owner}/{name}"]
        files = dict(repo.commits[repo.find(revision) or ""])
        for line in (await request.body()).splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = hub.large[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        sha = repo.commit(files)
        url = f"{hub.address}/{owner}/{name}/commit/{sha}"
        return {"commitUrl": url, "commitOid": sha, "success": True}


def known(request: Request) -> bool:
    return request.headers.get("authorization") == f"Bearer {TOKEN}"


def visible(hub: Hub, request: Request, name: str) -> Repo | None:
    repo = hub.repos.get(name)
    return None if repo is None or (repo.private and not known(request)) else repo


def how(file: dict[str, Any]) -> dict[str, str]:
    return {"uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular"}


def refused(status: int, code: str = "") -> Response:
    said = {401: "Invalid username or password.", 403: "You don't have the rights"}
    headers = {"X-Error-Code": code} if code else {}
    headers["X-Error-Message"] = said.get(status, code or "no")
    return Response(json.dumps({"error": "no"}), status, headers, "application/json")
