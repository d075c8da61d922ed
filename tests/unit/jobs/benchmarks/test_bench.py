"""The benches: contestants compute the same, bytes are counted, figures have the names promised."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cluster.api.service import Answered, Question
from cluster.errors import exit_code
from cluster.serving.predictor import Predictor
from jobs.benchmarks import (
    compose,
    evaluate,
    learners,
    query,
    refresh,
    report,
    step,
    submit,
    timing,
)
from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.timing import MadeBytes
from jobs.cli.main import app
from tacl.compose.arithmetic import composed
from tacl.errors import BadConfig, BaseNotFound
from tacl.training.config import RefreshConfig


def tiny() -> Subject:
    """Two layers with attention between them, in double precision."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    encoder = torch.nn.Sequential(torch.nn.Linear(4, 8), layer, torch.nn.Flatten()).double().eval()
    return Subject(
        encoder, ("*",), lambda n, random: torch.randn(n, 3, 4, generator=random).double()
    )


def test_all_contestants_compute_the_same_step() -> None:
    field = step.contestants(tiny(), torch.float64, 8, 1, "cpu")
    losses = {name: contestant.loss().item() for name, contestant in field.items()}
    assert losses["ours_cyclical"] == pytest.approx(losses["two_jvp"], rel=1e-12)
    assert losses["one_jvp"] == pytest.approx(losses["two_jvp"], rel=1e-12)
    assert len({round(losses[n], 6) for n in ("ours_none", "ours_cyclical", "ours_strict")}) == 3
    for name in ("ordinary", "ours_cyclical", "one_jvp", "two_jvp"):
        field[name].step()
    ours, theirs = (field[name].parameters for name in ("ours_cyclical", "two_jvp"))
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-12)


def test_a_second_step_forgets_the_gradient_of_the_first() -> None:
    contestant = step.contestants(tiny(), torch.float64, 2, 1, "cpu")["ours_cyclical"]
    contestant.step()
    first = [p.grad.clone() for p in contestant.parameters if p.grad is not None]
    contestant.step()
    assert all(torch.equal(p.grad, g) for p, g in zip(contestant.parameters, first, strict=True))  # pyright: ignore[reportArgumentType]


def test_the_error_is_that_of_the_precision() -> None:
    found = step.errors(tiny(), torch.float32, "cpu")
    assert set(found) == {"ours", "two_jvp"}
    assert 1e-9 < max(found.values()) < 1e-5


def test_bytes_are_counted_once_for_as_long_as_they_live() -> None:
    before = torch.zeros(1000)
    with MadeBytes() as made:
        one = torch.zeros(100)
        view, also = one[:50], one.view(10, 10)
        before.add_(1)
        gone = one + one
        del gone
        kept = torch.cat([one, one])
    assert made.peak == 4 * (100 + 200)
    assert made.kept == made.peak
    del one, view, also, kept
    assert made.kept == made.peak  # what happens later is no part of it


def test_what_a_backward_pass_needs_is_counted_below_autograd() -> None:
    weight = torch.randn(50, 50, requires_grad=True)
    x = torch.randn(20, 50)
    with MadeBytes() as made:
        y = (x @ weight).tanh()
    assert made.kept == 4 * 20 * 50  # of tanh, its result
    assert made.peak == 2 * made.kept  # and the product, before it
    assert y.requires_grad


def test_everybody_has_a_turn_in_every_round_and_the_first_does_not_count() -> None:
    order: list[str] = []
    told: list[tuple[int, int]] = []
    field = {name: lambda name=name: order.append(name) for name in "abc"}
    times = timing.in_turns(field, 4, "cpu", lambda *at: told.append(at))
    assert order == list("abc") * 5
    assert {len(taken) for taken in times.seconds.values()} == {4}
    assert told[-1] == (15, 15)
    made_up = timing.Race({"x": [1.0, 9.0, 3.0], "y": [2.0, 3.0, 3.0], "z": [0.0, 1.0, 3.0]})
    assert made_up.ratio("x", "y") == 1.0
    assert made_up.ratio("x", "y", "z") == 0.5
    assert (made_up.median("x"), made_up.spreads()["y"]) == (3.0, 0.5)


def test_sums_of_mapped_vectors_are_those_of_scaled_copies(monkeypatch: Any) -> None:
    one = tiny()
    with compose.vectors_on_disk(one, 3) as vectors:
        assert len({vector.digest for vector in vectors}) == 3
        fast, plain = (
            composed(vectors, [1.0, -0.5, 2.0]),
            compose.plainly(vectors, [1.0, -0.5, 2.0]),
        )
        for name, value in plain.items():
            torch.testing.assert_close(fast[name], value, rtol=1e-6, atol=1e-9)
    monkeypatch.setattr(compose.shutil, "disk_usage", lambda _: type("", (), {"free": 10}))
    with pytest.raises(BadConfig, match="fewer"), compose.vectors_on_disk(one, 3):
        pass


def test_gradients_of_coefficients_are_taken_where_the_encoder_is() -> None:
    one = tiny_float()
    with compose.vectors_on_disk(one, 2) as vectors:
        compose._weights_alone(one.on("meta").encoder, vectors)()


def test_random_encoders_by_name() -> None:
    one = subject("hf:minilm?size=5")
    batch = one.batch(2, torch.Generator())
    assert isinstance(batch, dict)
    assert one.encoder(batch).shape == (2, 384)
    assert not one.encoder.training
    for unknown in ("hf:nothing", "timm:nothing", "open_clip:nothing"):
        with pytest.raises(BaseNotFound, match="nothing"):
            subject(unknown)


@pytest.mark.parametrize(
    "text", ["timm:test_vit?size=96", "timm:vit_tiny_patch16_224?size=96", "hf:minilm?size=600"]
)
def test_random_encoders_take_inputs_of_the_size_that_is_asked_for(text: str) -> None:
    one = subject(text)
    features_BD = one.encoder(one.batch(1, torch.Generator()))
    assert features_BD.shape == (1, one.width)


def answer(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["bench", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_bench_step_answers_with_the_promised_figures() -> None:
    found = answer("step", "--model", "hf:minilm?size=4", "--batch", "8", "--rounds", "1")
    for key in ("ordinary_s", "ours_cyclical_s", "ours_strict_s", "two_jvp_s", "one_jvp_s"):
        assert found[key] > 0
        name = key.removesuffix("_s")
        assert {name} <= found["activation_bytes"].keys() & found["ratio_to_ordinary"].keys()
    assert found["speedup_over_two_jvp"] > 0
    kept = found["activation_bytes"]
    assert kept["ours_none"] < 1.35 * kept["ordinary"]
    assert kept["ours_cyclical"] <= 1.13 * kept["ours_none"]
    assert found["max_relative_error"]["ours"] < 1e-5


def test_bench_compose_answers_with_the_promised_figures() -> None:
    words = ("--model", "embedded", "--vectors", "2,3", "--batch", "2", "--rounds", "1")
    found = answer("compose", *words)
    assert set(found["sum"]) == {"2", "3"}
    for one in found["sum"].values():
        assert {"compose_s", "copy_s", "plain_s", "ratio_to_copy"} <= one.keys()
        assert one["peak_bytes"] <= 1.01 * found["theta_bytes"]
    assert found["atlas"]["peak_bytes"] <= found["theta_bytes"]
    assert found["atlas"]["ratio_to_ideal"] > 0


@pytest.mark.train
@pytest.mark.nightly
def test_bench_refresh_compares_a_refresh_with_a_training() -> None:
    found = answer("refresh", "--model", "hf:minilm?size=4", "--rounds", "1")
    expected = found["refresh_s"] / (found["10_steps_s"] * 20)
    assert found["ratio_to_training"] == pytest.approx(expected)
    assert 0.02 < expected < 1


def test_the_contestants_refresh_and_train(monkeypatch: Any) -> None:
    steps = []
    monkeypatch.setattr(refresh, "train", lambda *given: steps.append(given))
    field = refresh.contestants(tiny_float(), "cpu")
    found: Any = field["refresh"]()
    assert len(found.curve) == RefreshConfig(seed=0).steps
    assert found.after.interference < found.before.interference
    field["steps"]()
    ((_, _, _, data, known, config),) = steps
    assert (config.steps, config.batch, config.penalty) == (refresh.SOME, 16, "mixed")
    assert len(known(0)) == 7
    assert len(data) == refresh.ROWS


def test_bench_evaluate_finds_additions_much_faster() -> None:
    found = answer("evaluate", "--rows", "16", "--rounds", "1")
    assert found["speedup"] > 20
    assert found["pairs"] == 28


def test_a_query_with_fitted_heads_is_compared_with_one_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[Question]()
    real = Predictor.ask

    def ask(predictor: Predictor, question: Question) -> Answered:
        asked.append(question)
        return real(predictor, question)

    monkeypatch.setattr(Predictor, "ask", ask)
    monkeypatch.setattr(query, "TASKS", 2)
    monkeypatch.setattr(query, "REPEATED", 1)
    found = query.bench_query(1, lambda done, total: None)
    assert found["ratio_1"] == pytest.approx(found["fitted_1_s"] / found["trained_1_s"])
    assert {(one.model.digest, len(one.inputs)) for one in asked} == {
        (digest, rows) for digest in ("trained", "fitted") for rows in (1, query.ROWS)
    }
    models = {one.model.digest: one.model for one in asked}
    heads = {name: {term.vector.head_blob for term in one.terms} for name, one in models.items()}
    assert heads["fitted"].isdisjoint(heads["trained"])
    assert models["fitted"].novelty is not None
    assert models["trained"].novelty is None


def test_additions_and_dual_passes_evaluate_the_same() -> None:
    task = evaluate.EvaluationCase(tiny_float(), 6, "cpu")
    for pair in task.pairs()[:3]:
        torch.testing.assert_close(
            task.by_addition(pair), task.by_dual_pass(pair), rtol=1e-4, atol=1e-5
        )


def tiny_float() -> Subject:
    one = tiny()
    return Subject(
        one.encoder.float(), one.trainable, lambda n, r: torch.randn(n, 3, 4, generator=r)
    )


def test_the_report_names_what_misses_its_goal_and_what_was_left_out() -> None:
    step_figures = {
        "ratio_to_ordinary": {"ours_cyclical": 1.9, "ours_strict": 3.4},
        "speedup_over_two_jvp": 2.0,
        "activation_bytes": {"ordinary": 100, "ours_none": 110, "ours_cyclical": 123},
        "threads": 2,
    }
    found = {"vit": step_figures, "submit": {"overhead_s": 3.5}, "compose": {"left_out": "small"}}
    found["learners"] = {"sooner": 1.242}
    lines = {row.split(" | ")[0]: row for row in report.markdown(found).splitlines()}
    assert "| 1.9 |  |" in lines["| cyclical step / ordinary, ViT-B/32, 16 + 2"]
    assert "missed" in lines["| strict with 7 others / ordinary"]
    assert "missed" in lines[f"| {report.BEYOND}"]
    queued = "8 queued trainings of 100 steps: a process for each / reused ones that share θ0"
    assert lines[f"| {queued}"].endswith("| ≥ 1.5 | 1.242 | **missed** |")
    assert "missed" not in lines["| two jvp calls / cyclical, float32"]
    assert "small" in lines["| sum of 8 vectors / copying them"]
    assert "not run" in lines["| all pairs: dual passes / cached"]
    assert "2 threads" in report.markdown(found)


def test_queued_trainings_are_a_bench_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int, int]] = []

    def queued(runs: int, steps: int, rounds: int, say: timing.Say) -> dict[str, Any]:
        given.append((runs, steps, rounds))
        return {"sooner": 1.6}

    monkeypatch.setattr(report, "bench_learners", queued)
    said: list[str] = []
    others = report.BENCHES.keys() - {"learners"}
    found = report.bench_all("cpu", said.append, without=others)
    assert (found["learners"]["sooner"], given) == (1.6, [(8, 100, 2)])
    assert said == ["tacl bench learners --runs 8 --steps 100 --rounds 2"]
    assert {goal.bench for goal in report.GOALS} == report.BENCHES.keys()


def test_a_bench_that_needs_more_memory_than_a_gpu_has_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(device: str, say: timing.Say) -> dict[str, Any]:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 MiB")

    fine = report.Benchmark("evaluate", lambda device, say: {"speedup": 30.0})
    benches = {"vit": report.Benchmark("step", full), "evaluate": fine}
    monkeypatch.setattr(report, "BENCHES", benches)
    found = report.bench_all("cuda", lambda line: None)
    assert found["evaluate"]["speedup"] == 30.0
    rows = [line for line in report.markdown(found).splitlines() if "out of memory" in line]
    assert any(row.endswith("| - | CUDA out of memory. Tried to allocate 20 MiB |") for row in rows)


def test_a_bench_that_fails_without_a_word_is_told_by_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(device: str, say: timing.Say) -> dict[str, Any]:
        raise NotImplementedError

    monkeypatch.setattr(report, "BENCHES", {"vit": report.Benchmark("step", silent)})
    found = report.bench_all("cpu", lambda line: None)
    assert found["vit"]["left_out"] == "NotImplementedError"


class FakeClient:
    """A cluster whose clock is the machine's, and which trains in no time."""

    def __init__(self) -> None:
        self.events: list[SimpleNamespace] = []
        self.options: dict[str, Any] = {}

    def submit(self, name: str, data: str, **options: Any) -> None:
        assert list(Path(data).rglob("*.parquet"))
        self.options = options
        for kind in ("submitted", "queued", "started"):
            self.events.append(SimpleNamespace(kind=kind, at=time.time()))

    def wait(self, *names: str, poll: float) -> None:
        self.events.append(SimpleNamespace(kind="published", at=time.time() + 7))

    def logs(self, name: str) -> list[SimpleNamespace]:
        return self.events

    def vectors(self, name: str | None = None) -> list[SimpleNamespace]:
        seconds = {"seconds_ready": 2.0, "seconds_trained": 3.0, "seconds": 6.0}
        return [SimpleNamespace(metrics=seconds)] if name else []


def test_the_parts_of_a_submission_add_up_to_its_time(tmp_path: Path) -> None:
    client: Any = FakeClient()
    parts = submit.one_run(client, "one", tmp_path)
    assert client.options == {"steps": submit.STEPS}
    assert parts["training"] == 3.0
    assert parts["process and its imports"] == pytest.approx(1.0, abs=0.2)
    assert sum(value for name, value in parts.items() if name != "total") == pytest.approx(
        parts["total"], abs=0.01
    )


def test_bare_imports_are_of_torch_and_deepspeed(tmp_path: Path, monkeypatch: Any) -> None:
    """Here of files of their names, each of which takes a while."""
    for name in ("torch", "deepspeed"):
        (tmp_path / f"{name}.py").write_text("import time; time.sleep(0.3); print('hello')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert 0.6 < submit.bare_imports() < 30


def test_learners_that_go_on_are_compared_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are told the same, and differ in how much one process does."""
    took = iter(
        [(30.0, 40.0), (10.0, 20.0), (60.0, 80.0), (15.0, 20.0), (40.0, 60.0), (40.0, 20.0)]
    )
    ways: list[tuple[int, int, int]] = []

    def measured(folder: Path, home: str, most: int, runs: int, steps: int) -> learners.Took:
        assert not (folder / home).exists()
        assert len(list(folder.glob("task*"))) == runs
        ways.append((most, runs, steps))
        return learners.Took(*next(took))

    monkeypatch.setattr(learners, "took", measured)
    found = learners.bench_learners(2, 5, 3, lambda done, total: None)
    assert ways == [(1, 2, 5), (learners.RUNS, 2, 5)] * 3
    assert (found["sooner"], found["less_cpu"]) == (3.0, 3.0)
    assert (found["alone_s"], found["cpu"]["alone_s"]) == (40.0, 60.0)


def test_what_a_cluster_takes_of_the_processors_is_counted_until_its_processes_end() -> None:
    busy = [sys.executable, "-c", "sum(range(20_000_000)); input()"]
    with subprocess.Popen(busy, stdin=subprocess.PIPE) as process:
        client: Any = SimpleNamespace(
            home=SimpleNamespace(running=lambda: SimpleNamespace(pid=process.pid))
        )
        with learners.CpuSpent(client) as spent:
            time.sleep(4 * learners.POLL)
            assert process.stdin
            process.stdin.close()
            process.wait()
    assert 0.05 < spent.seconds < 10


def test_a_gpu_is_measured_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its benches are those of the CPU, made there; nothing else is asked of a machine."""
    asked: list[str] = []
    benches = {
        name: report.Benchmark(
            one.command, lambda device, say: asked.append(device) or {"threads": 1}
        )
        for name, one in report.BENCHES.items()
    }
    monkeypatch.setattr(report, "BENCHES", benches)
    monkeypatch.setattr(report, "GOALS", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused = CliRunner().invoke(app, ["bench", "gpu"])
    assert refused.exit_code == exit_code(BadConfig(""))
    assert "finds no GPU" in refused.stderr
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    done = CliRunner().invoke(app, ["bench", "gpu", "--out", str(tmp_path / "gpu.md")])
    assert done.exit_code == 0, done.output
    assert asked == ["cuda"] * (len(benches) - len(report.CLUSTERS))
    assert "Machine: NVIDIA H100, " in (tmp_path / "gpu.md").read_text()
