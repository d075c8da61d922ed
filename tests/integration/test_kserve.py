"""The Open Inference Protocol by KServe's own client, which lives in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from fastapi.testclient import TestClient

from tests.support.api_scene import scene
from tests.support.listening import serving
from tests.support.needs import need
from tests.support.places import ROOT
from tests.unit.cluster.api.test_api import PEOPLE, Person

PYTHON = ROOT / ".venv-kserve/bin/python"


def test_by_the_client_of_kserve(tmp_path: Path) -> None:
    python = need("kserve", PYTHON if PYTHON.exists() else None, "make kserve")
    app, service = scene(tmp_path / "home", **PEOPLE)
    http = TestClient(app)
    Person(http, "ann").submit("news")
    Person(http, "ann").get("status")
    Person(http, "eve").post("compositions", {"terms": ["+news"]})
    texts = ["what?", "wer, älter?"]
    client = ROOT / "tests/support/asked_by_kserve.py"
    with serving(app) as url:
        asked = [python, client, url.rstrip("/"), "eve", "token of eve", *texts]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "NotAuthenticated" in told.pop("without a token")
    assert told == {
        **{"live": True, "ready": True, "model": True, "nobody": False},
        **{"id": "7", "model_name": "eve"},
        "outputs": {
            "task": ["BYTES", ["news"] * 2],
            "label": ["BYTES", ["a"] * 2],
            "probability": ["FP32", [0.75] * 2],
        },
    }
    assert service.questions[0].inputs == texts
