"""What is deployed elsewhere, checked here as far as that goes without a cloud: every field is one
that its reader knows, every command is one that `tacl` has."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray.serve
import yaml

from cluster.runtime.head import DOOR
from tests.support.places import ROOT

DEPLOY = ROOT / "cluster" / "deploy"
KUBERNETES = "1.33"
Node = dict[str, Any]


def read(name: str) -> Node:
    return yaml.safe_load((DEPLOY / name).read_text())


def strict(schema: Any) -> Any:
    """The same schema, in which an object has no property that is not named."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        found["additionalProperties"] = False
    return found


def schema_of(shared: Path, kind: str) -> Node:
    schema = json.loads((shared / "schemas" / f"{kind}.v1.json").read_text())
    assert schema["properties"]["metadata"] == {"type": "object"}
    return strict(schema)


def pods(cluster: Node) -> Iterator[Node]:
    """The pods of a RayCluster's spec."""
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield {"apiVersion": "v1", "kind": "Pod", **group["template"]}


def cluster_of(name: str) -> Node:
    """The RayCluster's spec of a manifest."""
    spec = read(name)["spec"]
    return spec.get("rayClusterConfig", spec)


def require_commands(text: str) -> None:
    """Every `tacl VERB --option` in it is one."""
    import typer.main

    from jobs.cli.main import app

    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = re.sub(r"\\\s*\n\s*#?", " ", text)
    found = re.findall(r"\btacl ((?:up|status|down|submit)\b[^;'&]*)", lines)
    assert found
    for command in found:
        verb, *words = shlex.split(command, comments=True)
        known = {name for parameter in verbs[verb].params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, command


def test_the_cluster_of_kuberay(shared: Path) -> None:
    manifest = read("kuberay/cluster.yaml")
    schema = schema_of(shared, "rayclusters")
    jsonschema.validate(manifest, schema)
    assert manifest["spec"]["rayVersion"] == ray.__version__
    manifest["spec"]["headGroupSpec"]["template"]["spec"]["containres"] = []
    with pytest.raises(jsonschema.ValidationError, match="containres"):
        jsonschema.validate(manifest, schema)


def test_the_service_of_kuberay(shared: Path) -> None:
    from ray.serve.schema import ServeDeploySchema

    manifest = read("kuberay/service.yaml")
    jsonschema.validate(manifest, schema_of(shared, "rayservices"))
    config = ServeDeploySchema.model_validate(yaml.safe_load(manifest["spec"]["serveConfigV2"]))
    (application,) = config.applications
    module, _, name = application.import_path.partition(":")
    built = getattr(importlib.import_module(module), name)(application.args)
    assert isinstance(built, ray.serve.Application)
    (head, *_) = pods(manifest["spec"]["rayClusterConfig"])
    assert f"--storage {application.args['home']}" in start_of(head)


MANIFESTS = ("kuberay/cluster.yaml", "kuberay/service.yaml")


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods(name: str) -> None:
    for pod in pods(cluster_of(name)):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    pod = next(pods(cluster_of(name)))
    pod["spec"]["containers"][0]["lifecycel"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_have_no_rights_that_they_do_not_need(name: str) -> None:
    spec = cluster_of(name)
    assert (spec["authOptions"]["mode"], spec["tlsOptions"]) == ("token", {"enabled": True})
    for pod in pods(spec):
        inside = pod["spec"]
        assert inside["securityContext"]["runAsNonRoot"] is True
        assert inside["securityContext"]["runAsUser"] == image_user()
        assert inside["automountServiceAccountToken"] is False
        for container in inside["containers"]:
            rights = container["securityContext"]
            assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (
                False,
                True,
            )
            assert rights["capabilities"] == {"drop": ["ALL"]}
            places = {volume["name"]: volume for volume in inside["volumes"]}
            mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounted == {"/tmp", "/home/tacl"}  # Ray's files; the home, which is a cache
            assert all("emptyDir" in places[mount["name"]] for mount in container["volumeMounts"])
            assert "env" not in container  # secrets are named, never written here
            assert container["envFrom"] == [{"secretRef": {"name": "tacl"}}]


def image_user() -> int:
    (line,) = re.findall(r"^USER (\d+)$", (DEPLOY / "Containerfile").read_text(), re.M)
    return int(line)


def test_who_reaches_the_pods_and_how_many_may_go_at_a_time() -> None:
    network, *budgets = yaml.safe_load_all((DEPLOY / "kuberay/access.yaml").read_text())
    for one in (network, *budgets):
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    labels = [pod["metadata"]["labels"] for name in MANIFESTS for pod in pods(cluster_of(name))]
    ours = network["spec"]["podSelector"]["matchLabels"]
    assert all(ours.items() <= label.items() for label in labels)
    assert network["spec"]["policyTypes"] == ["Ingress"]
    operator = network["spec"]["ingress"][0]["from"][1]["podSelector"]["matchLabels"]
    assert operator == {"app.kubernetes.io/component": "kuberay-operator"}  # by Helm and by kubectl
    everybody = [rule for rule in network["spec"]["ingress"] if not rule.get("from")]
    assert not everybody
    selected = [budget["spec"]["selector"]["matchLabels"] for budget in budgets]
    assert selected == [{**ours, "ray.io/node-type": node} for node in ("head", "worker")]


def test_the_page_names_what_the_manifests_need() -> None:
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    named = re.findall(r"cluster/deploy/[\w./-]*\w", page)
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []
    for manifest in map(cluster_of, MANIFESTS):
        redis = manifest["gcsFaultToleranceOptions"]
        password = redis["redisPassword"]["valueFrom"]["secretKeyRef"]
        assert f"generic {password['name']} " in page
        assert f"\n{password['key']}=" in page


def test_the_operator_makes_the_certificates_that_the_manifests_ask_for() -> None:
    operator = read("kuberay/operator/kustomization.yaml")
    (resource,), (patch,) = operator["resources"], operator["patches"]
    assert resource.endswith("?ref=v1.7.0")  # whose schemas the manifests are held to
    (change,) = yaml.safe_load(patch["patch"])
    assert change["value"] == ["--feature-gates=RayClusterMTLS=true"]


def test_machines_reached_by_ssh_ask_for_a_token_over_tls() -> None:
    text = (DEPLOY / "ray.env").read_text()
    settings = dict(re.findall(r"^export (\w+)=(\S+)", text, re.M))
    assert (settings["RAY_AUTH_MODE"], settings["RAY_USE_TLS"]) == ("token", "1")
    from ray._common import tls_utils

    read_by_ray = re.findall(r'"(RAY_TLS_\w+)"', inspect.getsource(tls_utils.load_certs_from_env))
    assert set(read_by_ray) < set(settings)
    assert settings["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] == DOOR
    cluster = read("ray-cluster.yaml")
    commands = cluster["head_start_ray_commands"] + cluster["worker_start_ray_commands"]
    assert all(". ~/tacl/cluster/deploy/ray.env" in command for command in commands)


def start_of(head: Node) -> str:
    """The script that the head runs after Ray."""
    return head["spec"]["containers"][0]["lifecycle"]["postStart"]["exec"]["command"][-1]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_head_has_the_ports_that_kuberay_gives_it(name: str) -> None:
    """One that is named takes the place of all, also of those of Serve and of the dashboard."""
    (head, *_) = pods(cluster_of(name))
    assert "ports" not in head["spec"]["containers"][0]


@pytest.mark.parametrize("name", MANIFESTS)
def test_of_a_machine_with_two_addresses_the_head_takes_the_first(name: str) -> None:
    (head, *_) = pods(cluster_of(name))
    fakes = "ray() { :; }; hostname() { echo '10.0.0.7 fd00::7 '; }; tacl() { echo $*; };"
    said = subprocess.check_output(["bash", "-c", f"{fakes} {start_of(head)}"], text=True)
    assert "--address 10.0.0.7:6379 --" in said


def test_the_head_starts_a_home_that_any_node_can_take_over() -> None:
    (head, *_) = pods(read("kuberay/cluster.yaml")["spec"])
    script = start_of(head)
    require_commands(script)
    assert "--storage s3://" in script
    assert "--registry postgresql://" in script


def test_the_cluster_file_of_ray() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = (DEPLOY / "ray-cluster.yaml").read_text()
    validate_config(prepare_config(yaml.safe_load(text)))
    require_commands(text)
    with pytest.raises(jsonschema.ValidationError, match="worker_start_command"):
        validate_config(prepare_config({**yaml.safe_load(text), "worker_start_command": []}))


def test_the_image_has_what_is_installed() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert any(line.endswith(f"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH={DOOR}") for line in lines)
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in packages} | {project["project"]["readme"]} <= set(copied)
    (extras,) = (re.findall(r"'\.\[(.*)\]'", line)[0] for line in lines if "pip install" in line)
    # What variables ask for, on any node.
    of_pods = {"postgres", "tracing", "mlflow", "tensorboard"}
    assert set(extras.split(",")) == of_pods <= project["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_what_the_engine_gives_to_deepspeed(stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.config import DeepSpeedConfig

    from tacl.training.config import default_config
    from tacl.training.deepspeed import _settings

    config = default_config(1000, 0, ("block",))
    read_back = DeepSpeedConfig(_settings(config, stage))
    assert read_back.zero_optimization_stage == stage
    assert read_back.gradient_accumulation_steps == config.accumulation
