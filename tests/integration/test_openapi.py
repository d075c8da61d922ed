"""schemathesis over the whole OpenAPI: whatever is sent, nothing undeclared and no defect."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import ignored_auth, negative_data_rejection, positive_data_acceptance
from schemathesis.core.result import Ok

from cluster.data.answers import ARROW
from tests.support.api_scene import headers, scene
from tests.support.budget import CHOSEN, budget, some
from tests.unit.cluster.api.test_api import CSV

pytest_plugins = "schemathesis.pytest.plugin"  # no other file waits for its imports (pyproject)
EXAMPLES = budget(4, nightly=300)  # of every operation: 10,000 requests and more


PLACE = tempfile.TemporaryDirectory()  # it goes with the process


def _app():
    app, service = scene(Path(PLACE.name) / "home", root="admin")
    (data := Path(PLACE.name) / "data.csv").write_bytes(CSV)
    from cluster.client.client import Client

    client = Client(service.home, coordinator=service.coordinator, user="root")
    client.submit("faces", data, owner="root")
    client.wait(poll=0)
    client.compose("alice", ["faces"])
    client.compose("root", ["faces"])
    return app


schemathesis.serializer.alias(ARROW, "application/octet-stream")
schema = schemathesis.openapi.from_asgi("/v1/openapi.json", _app())
FOUND = schema.exclude(path="/v1/events").get_all_operations()
OPERATIONS = [one.ok().label for one in FOUND if isinstance(one, Ok)]


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=CHOSEN != "nightly",  # the same requests for every change
    suppress_health_check=[HealthCheck.too_slow],
)
def _holds(case: schemathesis.Case) -> None:
    # A recipe or a picture may fit its schema and still be none. And its own look at tokens sends
    # ours along: `test_api` asks every route without one. In a query all is text, whatever it was
    # meant as, and our token takes the place of one that is none.
    excluded = [ignored_auth, positive_data_acceptance]
    excluded += [negative_data_rejection] if case.method == "GET" else []
    case.call_and_validate(headers=headers("root"), excluded_checks=excluded)


# A test for each, under a name of its own: of tests of one name pytest-xdist runs one.
for operation in some(OPERATIONS):
    name = "test_" + re.sub(r"\W+", "_", operation)
    globals()[name] = schema.include(name=operation).parametrize()(_holds)


def test_every_operation_has_an_example_and_declares_its_refusals() -> None:
    for path, methods in schema.raw_schema["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description") or operation.get("summary"), (method, path)
            assert {"400", "401", "404", "413", "422"} <= operation["responses"].keys()
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            assert body is None or "$ref" in body["schema"]
    shown = (
        "Compose",
        "Make",
        "Ask",
        "AliasMove",
        "Reference",
        "Answers",
        "Problem",
    )
    for name, found in schema.raw_schema["components"]["schemas"].items():
        if name in (*shown, "Problem"):
            assert "examples" in str(found), name
