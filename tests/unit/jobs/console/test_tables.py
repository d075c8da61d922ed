"""Tables on a terminal of 80 columns: nothing is lost, and nothing is blank for minutes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from cluster.domain.base import Base
from cluster.domain.compositions import Composition, JudgedTask, RecipeTerm, Report, Target
from cluster.domain.operations import Answers, Belonging
from cluster.domain.reports import (
    InterferenceReport,
    MeasuredPair,
    MeasuredVector,
    TaskInterference,
    VectorStatus,
)
from cluster.domain.status import (
    ClusterStatus,
    CompositionRun,
    CompositionState,
    NodeStatus,
    Phase,
    Resources,
    RunState,
    RunStatus,
    TaskState,
    TaskStatus,
)
from cluster.domain.tasks import Options, VectorRef
from cluster.domain.users import TokenStatus, Usage
from cluster.domain.work import ClassReport, Evaluated, TaskAccuracy
from jobs.console import documents, evaluations, tables
from jobs.console import interference as of_vectors
from jobs.console.progress import PHASES, described
from tacl.heads.novelty import KEPT

ROOM = Resources(nodes=(NodeStatus(cpus=2),), cpus=2, free_cpus=1, gpus=0, free_gpus=0)
LONG = "a_task_whose_name_is_as_long_as_people_make_them_in_practice"


def shown(found: RenderableType, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(found)
    return captured.get()


def task(name: str = "news", state: TaskState = TaskState.READY, **more: object) -> TaskStatus:
    fixed = {"run_id": "r", "attempt": 0, "created": 0.0, "owner": "ann", "private": True}
    fixed |= {"name": name, "state": state, "ordinal": 1, "modality": "text", "classes": 2}
    return TaskStatus.model_validate(fixed | {"rows": 800, "options": Options()} | more)


def status(*tasks: TaskStatus, head: str = "text") -> ClusterStatus:
    base = Base.model_validate(
        {"spec": "hf:x", "digest": "d", "modality": "text", "head_kind": head}
    )
    return ClusterStatus(base=base, tasks=tasks, work=(), room=ROOM)


@pytest.mark.parametrize(
    ("free", "asked", "told"), [(1, 0, "1 GPU "), (3, 0, "3 GPUs "), (0, 0, ""), (1, 1, "")]
)
def test_gpus_that_a_training_could_have_are_told(free: int, asked: int, told: str) -> None:
    found = tables.idle_gpus(ROOM.model_copy(update={"gpus": 4, "free_gpus": free}), asked)
    assert told in found
    assert bool(found) == bool(told)


def test_words_of_none_of_these_are_those_of_the_threshold() -> None:
    assert KEPT == 19 / 20  # what query and page say of it


def test_a_status_is_whole_at_80_columns() -> None:
    training = task(LONG, TaskState.TRAINING, step=100, steps=12000, loss=0.5, version=12)
    text = shown(tables.status(status(training, task(accuracy_before=0.5, accuracy_after=0.9))))
    assert "…" not in text
    for part in ("100/12000", "ann", "(private)", "50.0", "90.0", "v12"):
        assert part in text


def test_no_word_of_a_status_is_cut_at_80_columns() -> None:
    fitted = task(
        version=2,
        accuracy_before=0.5,
        accuracy_after=0.9,
        accuracy_fitted=0.95,
        accuracy_frozen=0.94,
    )
    training = task("land", TaskState.TRAINING, step=100, steps=12000, loss=0.5)
    found = tables.status(status(fitted, training))
    narrow = shown(found).split()
    for word in ("training", "100/12000", "version", "zero-shot", "trained", "fitted", "frozen"):
        assert word in narrow
    (row,) = (line for line in shown(found, 120).splitlines() if line.startswith("news"))
    assert row.split() == [
        "news",
        "ready",
        "v2",
        "50.0",
        "90.0",
        "95.0",
        "94.0",
        "ann",
        "(private)",
    ]


@pytest.mark.parametrize("phase", Phase)
def test_what_a_training_does_beside_its_steps_is_said(phase: Phase) -> None:
    found = task(state=TaskState.TRAINING, phase=phase, step=40, steps=40)
    assert f"training  {PHASES[phase]}" in shown(tables.status(status(found)))
    assert described(found) == f"training, {PHASES[phase]}"
    imported = task(state=TaskState.TRAINING, imports=True, phase=phase)
    assert described(imported) == f"importing, {PHASES[phase]}"


def test_what_has_no_step_says_none() -> None:
    run = {"run_id": "r", "attempt": 0, "created": 0.0, "kind": "evaluate", "task": None}
    running = RunStatus.model_validate(run | {"about": "x", "state": RunState.RUNNING})
    assert tables.steps(running) == ""  # it has none
    assert "0/40" in shown(tables.status(status(task(state=TaskState.TRAINING, steps=40))))
    done = shown(tables.status(status(task(step=40, steps=40))))
    assert "steps" not in done


@pytest.mark.parametrize(("head", "name"), [("text", "zero-shot"), ("prototype", "class means")])
def test_class_means_are_not_called_zero_shot(head: str, name: str) -> None:
    found = status(task(accuracy_before=0.5), head=head)
    assert name in " ".join(shown(tables.status(found), 160).split())
    assert ("zero-shot" in shown(tables.status(found), 160)) == (head == "text")
    assert name in shown(evaluations.evaluation(evaluated(), found.base.untrained), 160)


def test_texts_that_are_longer_than_is_read_are_told() -> None:
    text = shown(tables.status(status(task(rows_cut=120))), 160)
    assert "news: 120 of 800 training texts are longer than the base model reads" in text
    assert "longer" not in shown(tables.status(status(task(rows_cut=0))), 160)


def evaluated(classes: int = 0) -> Evaluated:
    names = tuple(f"c{i}" for i in range(classes))
    right = tuple(i / classes for i in range(classes))  # c0 is the worst
    answered = tuple(tuple(i * (i == j) + (j == 0) for j in range(classes)) for i in range(classes))
    report = ClassReport(classes=names, accuracy=right, f1=right, confusion=answered)
    row = TaskAccuracy(zero_shot=0.5, individual=0.9, composed=0.8)
    return Evaluated(
        per_task={"news": row},
        absolute=0.8,
        normalized=0.9,
        class_incremental=0.7,
        by_class={"news": report} if classes else {},
        seconds=1.0,
    )


def test_the_worst_classes_of_an_evaluation_come_first() -> None:
    text = shown(evaluations.evaluation(evaluated(classes=12)))
    assert "the 10 worst of 12 classes" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("news")][1:]
    assert [row[1] for row in rows] == [f"c{i}" for i in range(10)]
    assert rows[3] == ["news", "c3", "4", "25.0", "25.0", "c0", "(1)"]
    assert "worst" not in shown(evaluations.evaluation(evaluated()))


def version(name: str, number: int, **more: object) -> VectorStatus:
    fixed = {"digest": "d", "blob": "b", "head_blob": "h", "run_id": "r", "regime": "linearized"}
    fixed |= {"norm": 1.25, "config": {}, "curves": {}, "created": 1e9, "champion": number == 1}
    fixed |= {"metrics": {"validation_zero_shot": 0.5, "validation_accuracy": 0.9}, "arrivals": ()}
    return VectorStatus.model_validate(fixed | {"task": name, "version": number} | more)


def test_vectors_are_whole_at_80_columns() -> None:
    met = [{"step": 0, "task": name, "version": 1} for name in (LONG, "signs")]
    found = tables.vectors([version(LONG, 1, arrivals=met), version("news", 12, parent=11)])
    text, wide = shown(found), shown(found, 240)
    for one in ("norm", "zero-shot %", "accuracy %", "created", "made by", "against"):
        assert one in text  # no header is broken
        assert one in wide.splitlines()[0]
    lines = [line.split() for line in text.splitlines()]
    assert ["news@v12", "1.250", "50.0", "90.0"] in [line[:4] for line in lines]
    assert ["news@v12", "refresh", "of", "v11"] in lines
    assert "champion" in text
    assert max(map(len, text.splitlines())) <= 80
    assert wide.count("news@v12") == 1  # and in one part, where it fits


def test_of_a_materialized_model_it_is_told_how_it_answers_where_no_task_is_named() -> None:
    found = evaluated().model_copy(update={"materialized_unknown": 0.123})
    lines = shown(evaluations.evaluation(found)).splitlines()
    (line,) = (line for line in lines if "the same, materialized" in line)
    assert line.split()[-1] == "12.3"
    assert "task unknown" in lines[lines.index(line) - 1]
    assert "the same, materialized" not in shown(evaluations.evaluation(evaluated()))


def test_evaluations_are_whole_at_80_columns() -> None:
    found = evaluated(classes=12)
    more = {"rows": 1200.0, "unknown": 0.71, "frozen_known": 0.82, "frozen_unknown": 0.63}
    named = {"per_task": {LONG: found.per_task["news"].model_copy(update=more)}}
    named |= {"by_class": {LONG: found.by_class["news"]}, "frozen_known": 0.8}
    whole = found.model_copy(update=named)
    text = shown(evaluations.evaluation(whole, "class means"))
    heads = ("rows", "class means %", "individual %", "composed %", "F1 %", "mostly taken for")
    for one in (*heads, "frozen base, same rows: task known / unknown", "1200"):
        assert one in text
    assert max(map(len, text.splitlines())) <= 80
    columns = "unknown %  frozen base %  frozen base, unknown %"
    assert columns in text
    assert columns in shown(evaluations.evaluation(whole), 200)
    assert ["71.0", "82.0", "63.0"] in [line.split()[-3:] for line in text.splitlines()]
    assert "unknown %" not in shown(evaluations.evaluation(found))


def test_users_are_whole_at_80_columns() -> None:
    one = TokenStatus(user=LONG, role="submitter", created=0.0, token="0123456789ab", expires=2e9)
    share = {"queued": 1, "queued_most": 32, "ran": 90, "ran_most": 1440}
    usage = Usage(user=LONG, stored=3 << 30, stored_most=64 << 30, **share)
    text = shown(tables.users([one], [usage]))
    for words in ("token", "created", "0123456789ab", "runs queued", "minutes in a day"):
        assert words in text
    for words in ("GiB stored", "submitter", "2033-05-", "90 of 1440", "3.0 of 64"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80


def test_all_classes_of_a_task_and_its_confusion_matrix() -> None:
    found = evaluated(classes=14)
    text = shown(evaluations.evaluation(found, of="news"))
    assert "worst" not in text
    assert max(map(len, text.splitlines())) <= 80
    told, _, matrix = text.partition("rows of a class (down)")
    rows = [line.split() for line in told.splitlines() if line.startswith("c")]
    assert [row[0] for row in rows] == ["class", *(f"c{i}" for i in range(14))]
    assert rows[4] == ["c3", "4", "21.4", "21.4", "c0", "(1)"]
    lines = [line.split() for line in matrix.splitlines()[1:] if line]
    first, *second = (i for i, line in enumerate(lines) if line[0] == "class")
    assert first == 0
    assert len(lines[1 : second[0]]) == 14  # all have a row that is taken for c0
    assert lines[4][:5] == ["c3", "1", "0", "0", "3"]
    assert lines[second[0] :] == [
        ["class", "c11", "c12", "c13"],
        ["c11", "11", "0", "0"],
        ["c12", "0", "12", "0"],
        ["c13", "0", "0", "13"],
    ]
    assert "the classes of signs were not measured" in shown(
        evaluations.evaluation(found, of="signs")
    )


def test_of_a_task_of_many_classes_it_is_said_that_confusions_are_not_counted() -> None:
    found = evaluated(classes=12)
    report = found.by_class["news"].model_copy(update={"confusion": ()})
    found = found.model_copy(update={"by_class": {"news": report}})
    rows = [line.split() for line in shown(evaluations.evaluation(found)).splitlines()]
    assert ["news", "c3", "25.0", "25.0"] in rows
    text = shown(evaluations.evaluation(found, of="news"))
    assert "12 classes; confusions are counted for at most 200" in text
    assert "rows of a class (down)" not in text


def test_the_loudest_pairs_are_shown_where_the_matrix_has_not_all_of_them() -> None:
    none = {"vectors": (MeasuredVector(task="a", version=1, norm=1.0),), "on": ("a",), "missing": 0}
    cells = dict.fromkeys(("raw", "standard_error", "relative", "logits"), ((1.0,),))
    pair = MeasuredPair(vector="z", version=3, on="a", raw=0.125, relative=0.25, logits=0.5)
    found = of_vectors.PlottedInterference(**none, **cells, high=0.4, findings=(), loudest=(pair,))
    (row,) = [x.split() for x in shown(of_vectors.interference(found)).splitlines() if "z@v3" in x]
    assert row == ["z@v3", "a", "0.50", "0.25", "0.125"]
    inside = found.model_copy(update={"loudest": (pair.model_copy(update={"vector": "a"}),)})
    assert "loudest" not in shown(of_vectors.interference(inside))
    task = TaskInterference(task="a", high=0.4, does=(), bears=(pair,), measured=(0, 7))
    text = shown(of_vectors.task_interference(task))
    assert "effect on a of the vectors of 7 other tasks" in text
    assert "z@v3" in text
    assert "on 0 shards" in text
    assert text.count("nothing is measured") == 1  # of what it does
    assert "warning: logits of 0.4 and more; remove it: tacl refresh NAME" in text
    quiet = task.model_copy(update={"bears": (pair.model_copy(update={"logits": 0.3}),)})
    assert "warning" not in shown(of_vectors.task_interference(quiet))


def test_a_wide_matrix_is_continued_below() -> None:
    names = tuple(f"task_number_{i}" for i in range(12))
    rows = tuple(tuple(float(i == j) for j in range(12)) for i in range(12))
    vectors = tuple(MeasuredVector(task=name, version=1, norm=1.0) for name in names)
    found = InterferenceReport(
        vectors=vectors,
        on=names,
        raw=rows,
        standard_error=rows,
        relative=rows,
        logits=rows,
        high=0.2,
        missing=0,
        findings=(),
    )
    text = shown(of_vectors._matrix(found, rows, 2, names))
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in names)  # whole, none folded
    assert text.count("1.00") == 12


def test_none_of_these_says_what_it_means_and_of_how_many_own_inputs_it_is_told() -> None:
    own, none = (Belonging(probability=0.5, none=told) for told in (False, True))
    ranked = {"news": [("world", 0.75), ("sport", 0.25)]}
    told = {"answers": (ranked, ranked), "belonging": (own, none)}
    found = Answers.model_validate({"user": "ann", "digest": "d", "seconds": 0.1} | told)
    asked, _, unlike = shown(tables.answers(["Stocks fell", "???"], found, 2), 120).partition("???")
    assert "none of these" not in asked
    often = f"1 in {round(1 / (1 - KEPT))} of their own is too"
    assert f"none of these: unlike the inputs of every task of this model ({often})" in unlike


def made(model: Composition, accuracies: dict[str, JudgedTask]) -> CompositionRun:
    """The run that made it, judged so."""
    return CompositionRun(
        run_id="r",
        attempt=1,
        created=0.0,
        state=CompositionState.READY,
        user=model.user,
        method=model.method,
        terms=("land",),
        model=model,
        report=Report(accuracies=accuracies, judged_on="validation rows", seconds=1.0),
    )


@pytest.mark.parametrize(("kept", "warned"), [(0.625, False), (0.62, False), (0.469, True)])
def test_a_method_that_is_worse_than_the_plain_sum_is_warned_of(kept: float, warned: bool) -> None:
    """By the tasks that are added: what is subtracted is to get worse."""
    terms = tuple(
        RecipeTerm(
            coefficient=c,
            vector=VectorRef(task=t, version=1, digest=t, blob="", head_blob="", run_id=""),
        )
        for t, c in (("land", 1.0), ("signs", -1.0))
    )
    accuracies = {
        "land": JudgedTask(zero_shot=0.2, before=0.625, after=kept, rows=40.0),
        "signs": JudgedTask(zero_shot=0.2, before=0.9, after=0.1, rows=40.0),
    }
    model = Composition(digest="d", user="ann", method="tsv", terms=terms)
    told = shown(tables.composition_run(made(model, accuracies)))
    assert ("the plain sum is better by 15.6 points on average; it is made" in told) == warned


def test_what_was_fitted_to_a_new_task_names_it_and_no_sum_takes_its_place() -> None:
    shares = JudgedTask(zero_shot=0.5, before=0.75, after=0.5, rows=40.0)
    target = Target(name="fitted", classes=("ham", "spam"), head_blob="h")
    model = Composition(digest="d", user="ann", method="atlas", terms=(), target=target)
    told = shown(tables.composition_run(made(model, {"fitted": shares})))
    assert "ann's model d, by atlas, for the new task fitted" in told
    assert "the plain sum is better by 25.0 points on average; give more --shots" in told


def test_what_is_not_finite_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    vector = MeasuredVector(task="digits", version=1, norm=math.inf)
    documents.print_json({"loss": math.nan, "all": [1.0, -math.inf], "said": "NaN", "of": vector})
    told = json.loads(capsys.readouterr().out)
    assert (told["loss"], told["all"], told["said"]) == (None, [1.0, None], "NaN")
    assert told["of"]["norm"] is None


def test_a_path_that_is_no_text_is_escaped_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    documents.print_json({"file": Path("caf\udce9")})
    assert json.loads(capsys.readouterr().out) == {"file": "caf\udce9"}
