"""The bench of many users over many vectors: what needs no server."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cluster.api.metrics import _of_predictors, text_of
from cluster.api.service import Answered, Question
from cluster.client.client import Client
from cluster.domain.compositions import Composition
from cluster.domain.figures import PredictorFigures
from cluster.learner.artifacts import Materials
from cluster.reading.reader import Reader
from cluster.serving.predictor import Predictor
from jobs.benchmarks import predictors, processes
from jobs.benchmarks.echo import Expected
from jobs.benchmarks.load import LoadPlan, LoadResult, Person, Readers
from jobs.benchmarks.population import TERMS
from jobs.benchmarks.predictors import (
    READS,
    Occupancy,
    PredictorsFound,
    PredictorsPlan,
    PredictorsRow,
    ReadRow,
    bench_predictors,
    found,
    kept_of,
    sampled,
)
from jobs.benchmarks.predictors_told import markdown
from jobs.benchmarks.processes import SeenProcess
from jobs.benchmarks.serving import facts
from jobs.benchmarks.synthetic import SMALL, founded, pictures_of
from jobs.cli.main import app

PLAN = PredictorsPlan(predictors=[1, 2], vectors=100, users=500, asking=LoadPlan(3, 32), part=0.25)


def figures(predictor: str, hits: int, misses: int) -> PredictorFigures:
    held = {"vectors": 3, "models": 1, "bytes": 4096, "hits": hits, "misses": misses}
    return PredictorFigures(predictor=predictor, passes=2, questions=9, **held)


def row(predictors: int, around: float) -> PredictorsRow:
    seen = facts(500, PLAN.asking, 2.0, LoadResult([0.1, 0.2, 0.3]))
    cpu = {"ingress": 0.004, "proxy": around - 0.004}
    if predictors:
        cpu |= {"predictor": 0.02}
    memory = {"predictor": 3 << 20, "rest": 5 << 20}
    return PredictorsRow(predictors, "zipf", seen, cpu, memory, 0.625, [2 << 20] * predictors)


def test_what_predictors_found_is_told_by_the_metrics() -> None:
    text = text_of(_of_predictors([figures("a", 60, 40), figures("b", 5, 5)])).decode()
    before = {"a": Occupancy(60, 40, 4096), "b": Occupancy(5, 5, 4096)}
    assert kept_of(text) == before
    after = {
        "a": Occupancy(90, 50, 4096),
        "b": Occupancy(5, 5, 4096),
        "c": Occupancy(3, 7, 0),
    }
    assert found(before, after) == pytest.approx(33 / 50)
    assert found(before, before) == 0


def test_processor_time_is_counted_by_what_a_process_does() -> None:
    kinds = {
        "ray::ServeReplica:tacl:predictor.answer": "predictor",
        "ray::ServeReplica:tacl:ingress": "ingress",
        "ray::ServeReplica:echo:Echo": "ingress",
        "ray::ProxyActor": "proxy",
        "ray::WatchedCoordinator": processes.REST,
    }
    assert {title: processes.kind_of(title) for title in kinds} == kinds
    before = {1: SeenProcess("ingress", 5.0), 2: SeenProcess("predictor", 9.0)}
    after = {
        1: SeenProcess("ingress", 5.5),
        3: SeenProcess("predictor", 1.0),
        4: SeenProcess("predictor", 0.25),
    }
    assert processes.taken(before, after) == {"ingress": 0.5, "predictor": 1.25}


def test_what_is_around_predictors_is_held_against_the_echo() -> None:
    read = ReadRow(READS[0], row(0, 0.018), row(0, 0.005), row(0, 0.01))
    rows, slow = [row(1, 0.012), row(2, 0.02)], [row(0, 0.01), row(0, 0.0125)]
    told = PredictorsFound(PLAN, "2 x", 1 << 20, 25 << 20, rows, row(0, 0.005), slow, [read])
    assert [(goal.measured, goal.missed) for goal in told.goals()] == [
        (pytest.approx(1.2), False),
        (pytest.approx(2.4), True),
        (pytest.approx(1.6), True),
        (pytest.approx(4.0), True),
        (pytest.approx(1.8), True),
        (pytest.approx(3.6), True),
    ]
    text = markdown(told, "tacl bench serve --predictors 1,2")
    for part in (
        "100 vectors of 1.0 MiB",
        "may fill 25.0 MiB, 0.25 of",
        "| 2 | zipf | 1.5 | 200 | 298 | 0.62 | 2.0, 2.0 | 3.0 | 8.0 | 0 |",
        "| echo | zipf | 1.5 | 200 | 298 | - | - | - | 8.0 | 0 |",
        "| 1 | zipf | 20.0 | 4.0 | 8.0 | - | 12.0 | 10.0 | 1.20 | 2.40 |",
        "| echo | zipf | - | 4.0 | 1.0 | - | 5.0 | - | - | 1 |",
        "| processor time around predictors (2, zipf), of a slow echo's | 1.5 | 1.60 | missed |",
        "| /v1/compositions/USER | 1.5 | 298 | 4.0 | 18.0 | 10.0 | 1.80 | 298 | 5.0 | 3.60 |",
        "| processor time of GET /v1/compositions/USER, of the echo's | 1.5 | 3.60 | missed |",
        "5 of 6 missed",
    ):
        assert part in text, part


def test_a_home_of_small_vectors_answers_its_users_as_recomputed(tmp_path: Path) -> None:
    population = founded(tmp_path / "home", 4 * TERMS, SMALL, models=50)
    home, pictures = population.home, pictures_of(3)
    vector = Materials(home, population.base).vector(population.reference(1, 1))
    assert 0 < vector.nbytes < 1 << 19
    assert set(vector.blocks)
    assert all(name.startswith("layer2.") for name in vector.blocks)
    reader = Reader(home, lambda hashes: None)
    (model,) = reader.compositions(["user21"])
    reader.close()
    assert isinstance(model, Composition)
    assert model == population.composition(21)
    right = sampled(population, pictures, [21])
    (answer,) = Predictor(str(home.path)).answer([Question(model, [pictures[2]])])
    assert isinstance(answer, Answered)
    (ranked,) = answer.answers
    assert right.is_right(21, 2, ranked)
    assert not right.is_right(21, 1, ranked)
    assert not right.is_right(22, 2, ranked)  # other tasks


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--predictors", "1,x"], "give one number"),
        (["--predictors", "1", "--vectors", "0"], "give one number"),
        (["--predictors", "1", "--vectors", "5"], "give 20"),
        (["--predictors", "1", "--soak", "9"], "leave --predictors out"),
        (["--users", "1,,2"], "give one number"),
        (["--soak", "-1"], "'--soak'"),
    ],
)
def test_numbers_that_cannot_be_are_refused(given: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "serve", *given])
    assert result.exit_code != 0
    assert said in " ".join((result.output + str(result.exception)).split())


def test_a_large_number_may_have_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[PredictorsPlan] = []

    def bench(plan: PredictorsPlan, say) -> PredictorsFound:
        plans.append(plan)
        return PredictorsFound(plan, "", 1, 1, [row(1, 0.012)], row(0, 0.01), [row(0, 0.01)], [])

    monkeypatch.setattr("jobs.benchmarks.predictors.bench_predictors", bench)
    monkeypatch.setenv("RAY_SERVE_THROUGHPUT_OPTIMIZED", "1")
    chosen = ["--predictors", "1,2", "--vectors", "2,000", "--users", "10,000", "--requests", "7"]
    result = CliRunner().invoke(app, ["bench", "serve", *chosen])
    assert result.exit_code == 0, result.output
    assert plans == [replace(PLAN, vectors=2000, users=10_000, asking=LoadPlan(7, 32))]
    assert "`RAY_SERVE_THROUGHPUT_OPTIMIZED=1 tacl bench serve --predictors 1,2" in result.output
    assert "--vectors 2000 --users 10000 --part 0.25" in result.output


@pytest.mark.parametrize(("most", "cpus"), [(2, 2), (4, 2), (5, 3), (8, 4)])
def test_the_cluster_has_room_for_all_predictors(
    monkeypatch: pytest.MonkeyPatch, most: int, cpus: int
) -> None:
    given = list[int]()

    def up(client: Client, cpus: int) -> None:
        given.append(cpus)
        raise KeyboardInterrupt

    home = SimpleNamespace(path=Path("/nowhere"))
    made = SimpleNamespace(home=home)
    monkeypatch.setattr(predictors, "founded", lambda *given: made)
    monkeypatch.setattr(Client, "up", up)
    with pytest.raises(KeyboardInterrupt):
        bench_predictors(replace(PLAN, predictors=[1, most]), lambda line: None)
    assert given == [cpus]


def test_readers_ask_for_their_own_model_and_see_whose_they_are_told() -> None:
    answered = {"/v1/compositions/ann": {"digest": "d1"}, "/v1/compositions/bob": {"digest": "d1"}}
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["authorization"]))
            body = json.dumps(answered[self.path]).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    people = {1: Person("ann", "a's", "d1"), 2: Person("bob", "b's", "d2")}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        readers = Readers(url, READS[0], Expected(["picture"], {}), people, [2, 1, 1])
        tally = readers.ask(LoadPlan(3, 1))
        server.shutdown()
    ann, bob = ("/v1/compositions/ann", "Bearer a's"), ("/v1/compositions/bob", "Bearer b's")
    assert asked == [bob, ann, ann]
    assert tally.wrong == 1  # bob was told of another's
    assert len(tally.latencies) == 3
