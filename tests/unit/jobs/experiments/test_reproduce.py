"""Tables from cells: what is computed once, what survives a kill, and whether the numbers hold."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, jvp
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_

from cluster.scheduler import budget, upkeep
from jobs.experiments.catalogue import TABLES
from jobs.experiments.context import Experiment
from jobs.experiments.methods import LONGER, METHODS, arriving, linear, order_of, total
from jobs.experiments.models import KeptDirection, Model, Sum, tangent
from jobs.experiments.runner import reproduce, waves
from jobs.experiments.tables import continual, negation, newcomers, pairs, unseen
from jobs.experiments.training import joint, trained
from tacl.data.splits import batch_rows
from tacl.errors import BadConfig
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.head import Head
from tacl.training.config import RefreshConfig
from tests.support import small_suite
from tests.support.places import ROOT

METHOD_NAMES = ["zero-shot", "individual", "linear", "linear-grid", "taujp+refresh", "ties", "mtl"]


def test_addition_of_every_method_and_a_second_run_that_computes_nothing(place: Path) -> None:
    request = small_suite.request(place, "out", "addition", METHOD_NAMES, seeds=(0, 1))
    done = reproduce(request)
    assert done.table.variants() == METHOD_NAMES
    assert [path.name for path in done.files] == [
        "addition-small.json",
        "addition-small.md",
        "addition-small.png",
    ]
    before = [path.read_bytes() for path in done.files]
    again = reproduce(request)
    assert again.made == []
    assert [path.read_bytes() for path in again.files] == before
    known = json.loads(before[0])
    assert known["summary"]["individual"]["normalised"] == {
        "mean": pytest.approx(1.0),
        "deviation": pytest.approx(0.0),
        "count": 2,
    }
    for one in known["entries"]:
        assert set(one["tasks"]) == {"one", "two", "three"}
        if one["variant"] == "individual":
            assert one["numbers"]["normalised"] == pytest.approx(1.0)
            assert one["numbers"]["of_linear"] == pytest.approx(1.0)


def test_one_softmax_judges_rows_among_the_classes_of_all_tasks(experiment: Experiment) -> None:
    """From the same theta0, over the same batches: more classes can only be more surprising."""
    own, all_ = (joint(experiment, "ordinary", one).cell.facts["loss"] for one in (False, True))
    assert len(own) == len(all_)
    assert all_[0] > own[0]


def test_linear_numbers_are_those_of_an_explicit_sum(experiment: Experiment) -> None:
    """The kept tangent of the sum against torch.func.jvp along the sum of the vectors."""
    first = {task: linear(experiment, task) for task in experiment.pool}
    model = total(experiment, first)
    items = experiment.rows("two").items("test")[:6]
    encoder = experiment.backbone.encoder
    theta0 = {n: p.detach() for n, p in encoder.named_parameters()}
    taus = [vector.tau() for vector in first.values()]
    along = {n: sum((tau[n] for tau in taus), torch.zeros_like(p)) for n, p in theta0.items()}
    batch = experiment.backbone.collate(items)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        features, change = jvp(  # pyright: ignore[reportAssignmentType]
            lambda theta: functional_call(encoder, theta, (batch,)), (theta0,), (along,)
        )
    torch.testing.assert_close(
        model.features("two", "test")[:6], features + change, rtol=1e-3, atol=1e-4
    )
    apart = sum(tangent(experiment, vector, "two", "test") for vector in first.values())
    both = experiment.features("two", "test") + apart
    torch.testing.assert_close(model.features("two", "test"), both, rtol=1e-3, atol=1e-4)


def test_chosen_test_rows_belong_to_their_seed(place: Path, experiment: Experiment) -> None:
    """The test split is the same for every seed, the choice of some of its rows is not."""
    other = Experiment(experiment.suite, 1, place / "data", experiment.cells, experiment.base)
    assert experiment.rows("one").digest("test") == other.rows("one").digest("test")
    vector = linear(experiment, "one")
    for of_seed in (experiment, other):
        items = of_seed.rows("one").items("test:8")
        expected = of_seed.base.encoded(items)
        torch.testing.assert_close(of_seed.features("one", "test:8"), expected)
        found = tangent(of_seed, vector, "one", "test:8")
        module, taus = experiment.base.module, {"tau": vector.tau()}
        again = cached_tangents(module, experiment.backbone, items, taus, 4)
        torch.testing.assert_close(found, again.tangents["tau"])
    assert not torch.equal(experiment.features("one", "test:8"), other.features("one", "test:8"))


def test_a_coefficient_is_chosen_on_validation_rows_only(experiment: Experiment) -> None:
    grid = [i / 20 for i in range(21)]
    along = Sum([(1.0, linear(experiment, task)) for task in experiment.pool])
    scores = []
    for c in grid:
        right = 0.0
        for task in experiment.pool:
            plain = experiment.features(task, "validation")
            change = tangent(experiment, along, task, "validation")
            predicted = experiment.head(task).logits(plain + c * change).argmax(-1)
            labels = experiment.rows(task).labels_N("validation")
            right += (predicted == labels).double().mean().item()
        scores.append(right)
    model = METHODS["linear-grid"].model(experiment)
    assert model.facts["coefficient"] == grid[scores.index(max(scores))]


class Killed(BaseException):
    """As a Ctrl-C or a kill: nothing catches it."""


def test_a_run_that_was_killed_goes_on_with_the_same_bytes(place: Path) -> None:
    methods = ["zero-shot", "linear", "linear+refresh"]
    whole = reproduce(small_suite.request(place, "whole", "addition", methods))
    broken = small_suite.request(place, "broken", "addition", methods)
    made: list[str] = []
    for patience in (9, 7, 5):

        def say(line: str, left: list[int] = [patience]) -> None:  # noqa: B006
            if line.startswith("addition"):
                return
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        with pytest.raises(Killed):
            made += reproduce(broken, say).made
        half = sorted(place.glob("broken/.cells/*/.*"))
        assert not half, "a draft was left behind"
    finished = {p: p.stat().st_mtime_ns for p in place.glob("broken/.cells/*/*")}
    ended = reproduce(broken)
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    assert 0 < len(ended.made) < len(whole.made)
    names = sorted(
        p.relative_to(place / "whole") for p in place.glob("whole/.cells/*/*.safetensors")
    )
    for name in names:
        assert (place / "broken" / name).read_bytes() == (place / "whole" / name).read_bytes()
    assert [e.numbers for e in ended.table.entries] == [e.numbers for e in whole.table.entries]


def test_sums_have_the_key_of_their_terms(experiment: Experiment) -> None:
    first = [linear(experiment, "one"), linear(experiment, "two")]
    assert Sum([(1.0, first[0])]).key != Sum([(0.5, first[0])]).key
    assert Sum([(1.0, first[0])]).key != Sum([(1.0, first[1])]).key


OTHER_TABLES = {
    "negation": ["linear", "taujp-grid", "linear-atlas", "ordinary-atlas"],
    "continual": ["linear", "taujp+upkeep", "sequential", "magmax", "opcm", "joint"],
    "interference": ["linear", "taujp+refresh"],
    "disentanglement": ["linear", "taujp"],
    "limited": ["all", "16 samples", "half of the tasks"],
    "sensitivity": ["strength 0", "strength 3"],
    "refresh": ["none", "16 samples", "one delta"],
    "storage": ["float32", "int4"],
    "public": ["as it is", "10 penalised steps"],
    "unseen": ["linear", "taujp"],
    "few-shot": ["ordinary", "theta0+tip", "ordinary+lp"],
    "peft": ["ordinary x 4"],
}


@pytest.mark.parametrize("name", OTHER_TABLES)
def test_every_table_is_made_and_written(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcomers, "SHOTS", (1, 2))  # for time
    monkeypatch.setattr(newcomers, "SHARES", (10,))
    done = reproduce(small_suite.request(place, "out", name, OTHER_TABLES[name]))
    assert done.table.variants() == OTHER_TABLES[name]
    text = done.files[1].read_text()
    keys = {key for entry in done.table.entries for key in entry.numbers}
    assert len(keys) >= 2
    assert keys <= {column.key for column in done.table.columns}
    assert all(column.heading in text for column in done.table.columns)
    assert f"tacl reproduce {name}" in text
    assert "in float32 where the model is linearized" in text
    assert done.files[2].stat().st_size > 1000


def test_a_new_task_without_class_names_is_known_by_its_shots_alone(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody makes a head of all its labels; there is no zero-shot accuracy, and no test-time."""
    whole = Experiment.head

    def head(self: Experiment, task: str) -> Head:
        assert task != "target"
        return whole(self, task)

    monkeypatch.setattr(Experiment, "head", head)
    monkeypatch.setattr(newcomers, "SHOTS", (2,))
    monkeypatch.setattr(newcomers, "SHARES", (1,))
    for name, variant in (
        ("few-shot", "linear"),
        ("few-shot", "theta0+lp"),
        ("peft", "ordinary x 1"),
    ):
        found = TABLES[name].entry(experiment, variant)
        (score,) = (value for key, value in found.numbers.items() if key != "zero_shot")
        assert found.numbers["zero_shot"] is None
        assert found.tasks["target"]["zero_shot"] is None
        assert score is not None
        assert 0.25 < score <= 1
    few = newcomers.some_of_each(experiment.rows("target").train, 2, experiment.seed)
    encoded_ND, test_ND = experiment.base.encoded(few.items), experiment.features("target", "test")
    means_CD = torch.stack([encoded_ND[few.labels == label].mean(0) for label in range(4)])
    nearest_N = (test_ND @ normalize(means_CD).T).argmax(-1)
    assert torch.equal(experiment.head_from("target", few).logits(test_ND).argmax(-1), nearest_N)
    method = TABLES["test-time"].method(experiment.suite, "linear")
    with pytest.raises(BadConfig, match="text tower"):
        method.require(experiment.suite, experiment.backbone)


def test_accuracy_after_every_arrival_against_a_loop(experiment: Experiment) -> None:
    found = TABLES["continual"].entry(experiment, "linear")
    order = found.more["order"]
    assert sorted(order) == sorted(experiment.pool)
    vectors = {task: linear(experiment, task) for task in order}
    for i in range(len(order)):
        for j, task in enumerate(order):
            features_ND = experiment.features(task, continual.PART)
            for known in order[: i + 1]:
                features_ND = features_ND + tangent(
                    experiment, vectors[known], task, continual.PART
                )
            predicted = experiment.head(task).logits(features_ND).argmax(-1)
            labels = experiment.rows(task).labels_N(continual.PART)
            right = (predicted == labels).double().mean().item()
            assert found.more["R"][i][j] == pytest.approx(right)


def test_a_task_is_trained_against_earlier_ones_only(experiment: Experiment) -> None:
    """A change of what comes later leaves the vectors before it as they are."""
    order = order_of(experiment)
    again = [order[0], order[2], order[1]]
    first, second = (continual.tau_jp_sum(experiment, names) for names in (order, again))
    assert first[0].model.key == second[0].model.key
    assert first[1].model.key != second[1].model.key


def test_upkeep_with_room_for_everything_refreshes_everything(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_in_a_cluster = replace(experiment.suite, refresh=RefreshConfig(seed=0))
    experiment = experiment.of(as_in_a_cluster)
    order = order_of(experiment)
    monkeypatch.setattr(upkeep, "REFRESH_FROM", 0.0)
    monkeypatch.setattr(budget, "REFRESH", 3)
    monkeypatch.setattr(budget, "CELL", 1)
    planned, whole = (
        make(experiment, order) for make in (continual.tau_jp_upkeep, continual.tau_jp_refreshed)
    )
    assert [one.model.key for one in planned] == [one.model.key for one in whole]
    assert planned[-1].merging.cpu_seconds > whole[-1].merging.cpu_seconds  # it also measures


def test_upkeep_refreshes_nothing_that_short_trainings_do_not_pay(experiment: Experiment) -> None:
    order = order_of(experiment)
    found, plain = (
        continual.tau_jp_upkeep(experiment, order),
        continual.tau_jp_sum(experiment, order),
    )
    assert [one.model.key for one in found] == [one.model.key for one in plain]
    assert all(one.merging.cpu_seconds > 0 for one in found[1:])


def test_the_default_training_meets_those_that_came_before(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LONGER, "steps", 9)  # for time
    order, generic = order_of(experiment), experiment.suite.generics
    mixed = {"penalty": "mixed", "penalty_batch": 8, **LONGER}
    for place, task in enumerate(order):
        expected = trained(experiment, task, [*generic, *order[:place]], **mixed)
        assert arriving(experiment, task).key == expected.key


def test_sequential_training_against_a_loop(experiment: Experiment) -> None:
    """The second task starts where the first one ended."""
    order = order_of(experiment)[:2]
    first, second = (vector.tau() for vector in continual.one_after_another(experiment, order))
    encoder, head = experiment.backbone.encoder, experiment.head(order[1])
    data = experiment.rows(order[1]).train
    given = (order[1], len(data), experiment.seed, experiment.backbone.trainable)
    config = experiment.suite.config(*given, penalty="none", precision="float32")
    theta0 = {name: encoder.get_parameter(name).detach() for name in first}
    tau = {name: value.clone().requires_grad_() for name, value in first.items()}
    optimizer = torch.optim.AdamW(tau.values(), weight_decay=config.weight_decay)
    for step in range(config.steps):
        rows = batch_rows(len(data), config.batch, config.seed, step)
        theta = {name: theta0[name] + tau[name] for name in tau}
        batch = experiment.backbone.collate([data.items[row] for row in rows])
        head.losses(functional_call(encoder, theta, (batch,)), data.labels[rows]).mean().backward()
        clip_grad_norm_(tau.values(), config.clip)
        share = 0.5 + 0.5 * math.cos(math.pi * (step - 1) / (config.steps - 1)) if step else 1.0
        optimizer.param_groups[0]["lr"] = config.learning_rate * share
        optimizer.step()
        optimizer.zero_grad()
    # A bias in front of a softmax has a gradient of rounding errors, and Adam a step for it.
    moved = math.hypot(*((second[name] - first[name]).norm() for name in tau))
    error = math.hypot(*((second[name] - tau[name].detach()).norm() for name in tau))
    assert error < 1e-3 * moved


def test_interference_of_a_pair_against_a_loop(experiment: Experiment) -> None:
    point = next(
        one
        for one in TABLES["interference"].entry(experiment, "linear").more["points"]
        if (one["vector"], one["task"]) == ("three", "one")
    )
    own, other = linear(experiment, "one"), linear(experiment, "three")
    labels, head = experiment.rows("one").labels_N(pairs.PART), experiment.head("one")
    alone = experiment.features("one", pairs.PART) + tangent(experiment, own, "one", pairs.PART)
    both = alone + tangent(experiment, other, "one", pairs.PART)
    accuracies = [(head.logits(f).argmax(-1) == labels).double().mean() for f in (alone, both)]
    assert point["lost"] == pytest.approx((accuracies[0] - accuracies[1]).item())
    probe = tangent(experiment, other, "one", "probe")
    sizes = [sum(x * x for x in row) ** 0.5 for row in probe.tolist()]
    assert point["tau_jp"] == pytest.approx(sum(sizes) / len(sizes), rel=1e-5)
    before = experiment.features("one", "probe") + tangent(experiment, own, "one", "probe")
    classes = [head.logits(f).argmax(-1).tolist() for f in (before, before + probe)]
    flips = [one != other for one, other in zip(*classes, strict=True)]
    assert any(flips)
    assert point["flipped"] == pytest.approx(sum(flips) / len(flips))
    plain = experiment.features("one", "probe")
    moves = []
    for move in (probe, tangent(experiment, own, "one", "probe")):
        rows = (head.logits(plain + move) - head.logits(plain)).tolist()
        centred = [[x - sum(row) / len(row) for x in row] for row in rows]
        moves.append(sum(sum(x * x for x in row) ** 0.5 for row in centred) / len(rows))
    assert point["logits"] == pytest.approx(moves[0] / moves[1], rel=1e-4)


@pytest.mark.parametrize("variant", ["linear-atlas", "ordinary-atlas"])
def test_a_learned_negation_keeps_the_control_on_the_rows_it_learned_from(
    experiment: Experiment, variant: str
) -> None:
    vector = METHODS[variant.partition("-")[0]].vectors(experiment)["one"]
    found = KeptDirection(negation.unlearned(experiment, vector, "generic"), vector.regime)
    shares = {}
    for task in ("one", "generic"):
        labels = experiment.rows(task).labels_N(negation.PART)
        before = experiment.features(task, negation.PART)
        after = Model(experiment, direction=found).features(task, negation.PART)
        shares[task] = [
            (experiment.head(task).logits(f).argmax(-1) == labels).double().mean().item()
            for f in (before, after)
        ]
    assert shares["one"][1] < shares["one"][0]
    assert shares["generic"][1] >= 0.95 * shares["generic"][0]
    assert found.cell.facts["score"] == pytest.approx(-shares["one"][1])
    tau, moved = vector.tau(), found.tau()  # of each block a multiple
    for name, block in moved.items():
        scale = (block * tau[name]).sum() / tau[name].square().sum()
        torch.testing.assert_close(block, scale * tau[name], rtol=1e-3, atol=1e-7)


def test_one_process_needs_neither_ray_nor_deepspeed(place: Path) -> None:
    reproduce(small_suite.request(place, "out", "addition", ["zero-shot", "linear"]))
    code = (
        "import sys\n"
        "for name in ('ray', 'deepspeed'):\n"
        "    sys.modules[name] = None\n"  # an import of it raises ImportError
        "from pathlib import Path\n"
        "from tests.support import small_suite\n"
        "from jobs.experiments.runner import reproduce\n"
        "from jobs.cli.verbs import reproduce as verb\n"
        f"request = small_suite.request(Path({str(place)!r}), 'alone', 'addition', ['linear'])\n"
        "print(len(reproduce(request).made))\n"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 0


def test_tables_grow_with_seeds_and_variants_of_the_same_settings(place: Path) -> None:
    reproduce(small_suite.request(place, "grown", "addition", ["zero-shot"]))
    request = small_suite.request(place, "grown", "addition", ["individual"], seeds=(1,))
    table = reproduce(request).table
    assert [(e.variant, e.seed) for e in table.entries] == [("zero-shot", 0), ("individual", 1)]

    def meanwhile(line: str) -> None:
        """Another process adds its entries while this one is at work."""
        if line == "addition: linear, seed 0":
            more = small_suite.request(place, "grown", "addition", ["individual"])
            reproduce(more)

    both = small_suite.request(place, "grown", "addition", ["zero-shot", "linear"])
    table = reproduce(both, meanwhile).table
    order = [("zero-shot", 0), ("individual", 0), ("individual", 1), ("linear", 0)]
    assert [(e.variant, e.seed) for e in table.entries] == order
    stronger = replace(request.suite.refresh, strength=7.0)
    other = replace(request, suite=replace(request.suite, steps=3, refresh=stronger))
    told: list[str] = []
    why = r"4 rows made otherwise: .*refresh.strength 3.0, now 7.0; .*steps 6, now 3; move it away"
    with pytest.raises(BadConfig, match=why):
        reproduce(other, told.append)
    assert told == []
    assert [(e.variant, e.seed) for e in reproduce(both).table.entries] == order


def test_more_shots_hold_the_rows_of_fewer(experiment: Experiment) -> None:
    data = experiment.rows("one").train
    few, more = (newcomers.some_of_each(data, count, seed=3) for count in (2, 4))
    assert torch.bincount(few.labels).tolist() == [2] * 4
    kept = {id(item) for item in more.items}
    assert all(id(item) in kept for item in few.items)


def test_unseen_tasks_are_seen_by_nothing(experiment: Experiment) -> None:
    smaller = unseen.without_last(experiment)
    assert smaller.pool == experiment.pool[:-2]
    left_out = [experiment.rows(task).digest("shard") for task in experiment.pool[-2:]]
    methods = [METHODS["taujp"], METHODS["taujp+refresh"]]
    for vector in [v for method in methods for v in method.vectors(smaller).values()]:
        record = experiment.cells.folder / "vector" / f"{vector.key}.json"
        assert not any(digest in record.read_text() for digest in left_out)


def test_pieces_that_run_side_by_side_leave_nothing_to_do(place: Path) -> None:
    request = small_suite.request(place, "ahead", "addition", ["linear", "taujp"])
    trainings, entries = waves(request)
    assert len(trainings) == 2 * 3
    assert len(entries) == 2
    for _, piece in [*reversed(trainings), *reversed(entries)]:
        piece()
    assert reproduce(request).made == []
