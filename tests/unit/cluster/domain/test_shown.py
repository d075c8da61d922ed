"""Messages are shown short in a shell, and as tables in a notebook."""

from __future__ import annotations

import re

from cluster.domain.base import Base, BlobRef
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.operations import Answers, Belonging, Candidate
from cluster.domain.receipts import Submitted
from cluster.domain.shown import MOST
from cluster.domain.status import ClusterStatus, NodeStatus, Resources, TaskState, TaskStatus
from cluster.domain.tasks import Options, VectorRef
from cluster.domain.work import ClassReport, Evaluated, TaskAccuracy

BASE = Base(spec="hf:<script>", digest="d", modality="text", head_kind="text")
ROOM = Resources(nodes=(NodeStatus(cpus=2),), cpus=2, free_cpus=1, gpus=0, free_gpus=0)


def rows(html: str) -> list[list[str]]:
    """The words in the cells, row by row; of tables within tables, too."""
    return [re.findall(r"[^<>]+(?=</t[dh]>)", row) for row in html.split("<tr>")]


def task(name: str) -> TaskStatus:
    more = {"run_id": "0ff", "attempt": 1, "created": 0.0, "owner": "ann", "private": False}
    more |= {"ordinal": 1, "modality": "text", "classes": 2, "rows": 9, "options": Options()}
    return TaskStatus.model_validate({"name": name, "state": TaskState.READY, "version": 2} | more)


def test_what_is_empty_is_left_out_and_what_is_long_is_cut() -> None:
    submitted = Submitted(task="news", run_id="f" * 64, state=TaskState.QUEUED)
    assert repr(submitted).startswith("Submitted(task='news', run_id='fff")
    assert "notes" not in repr(submitted)
    assert repr(BlobRef(digest="ab12", rows=0)) == "BlobRef(digest='ab12', rows=0)"


def test_a_confusion_matrix_is_no_wall_of_numbers() -> None:
    some = tuple(f"class {i}" for i in range(150))
    halves, ones = (0.5,) * 150, (1,) * 150
    report = ClassReport(classes=some, accuracy=halves, f1=halves, confusion=(ones,) * 150)
    found = Evaluated(
        per_task={f"t{i}": TaskAccuracy(zero_shot=0.2, composed=0.5) for i in range(20)},
        absolute=0.5,
        normalized=0.5,
        class_incremental=0.5,
        by_class={f"t{i}": report for i in range(20)},
        seconds=1.0,
    )
    assert len(repr(found)) < 2500
    assert "absolute=0.5" in repr(found)


def test_a_notebook_shows_text_as_text() -> None:
    shown = BASE._repr_html_()
    assert "<th>spec</th><td>hf:&lt;script&gt;</td>" in shown
    assert "<script>" not in shown


def test_a_status_is_a_table_of_tasks_and_ids_are_not_in_it() -> None:
    tasks = tuple(task(f"t{number}") for number in range(MOST + 5))
    found = ClusterStatus(base=BASE, tasks=tasks, work=(), room=ROOM)
    shown = rows(found._repr_html_())
    assert ["name", "state", "version", "owner"] in shown
    assert ["0", "t0", "ready", "2", "ann"] in shown
    assert ["and 5 more"] in shown
    assert str(MOST) not in [row[0] for row in shown if row]
    assert repr(tasks[0]) == "TaskStatus(name='t0', state='ready', version=2, owner='ann')"


def test_an_evaluation_is_a_table_of_tasks_and_its_means() -> None:
    per_task = {
        "news": TaskAccuracy(zero_shot=0.2, composed=0.87654321, rows=200.0),
        "trec": TaskAccuracy(zero_shot=0.25, composed=0.5),
    }
    means = {"absolute": 0.7, "normalized": None, "class_incremental": 0.6, "task_unknown": 0.65}
    shown = rows(Evaluated(per_task=per_task, **means, seconds=1.0)._repr_html_())
    for row in (
        ["zero_shot", "composed", "rows"],
        ["news", "0.2", "0.8765", "200.0"],
        ["trec", "0.25", "0.5"],
    ):
        assert row in shown
    assert shown[-2:] == [["absolute", "0.7"], ["unknown", "0.65"]]


def test_many_classes_are_not_as_many_columns() -> None:
    wide = {"news": {f"c{number}": 1.0 for number in range(MOST + 3)}}
    found = Evaluated(
        per_task={}, without=wide, absolute=1, normalized=1, class_incremental=1, seconds=1
    )
    assert [*(f"c{number}" for number in range(MOST)), "and 3 more"] in rows(found._repr_html_())


def test_a_model_is_its_recipe() -> None:
    blobs = {"digest": "beef", "blob": "beef", "head_blob": "beef", "run_id": "beef"}
    news, trec = (VectorRef.model_validate({"task": t, "version": 2} | blobs) for t in "ab")
    terms = (RecipeTerm(coefficient=1, vector=news), RecipeTerm(coefficient=-0.5, vector=trec))
    found = Composition(digest="beef", user="alice", terms=terms)
    assert repr(found) == "Composition(user='alice', method='sum', terms=(+a@v2, -0.5*b@v2))"
    assert rows(found._repr_html_())[-1] == ["terms", "(+a@v2, -0.5*b@v2)"]


def test_answers_are_the_likeliest_classes_also_within_tasks() -> None:
    ranked = {"news": [("world", 0.75), ("sport", 0.25)], "trec": [("who", 1.0)]}
    within = Answers(answers=(ranked,), user="alice", digest="beef", seconds=0.1)
    shown = rows(within._repr_html_())
    assert ["0", "news", "world", "0.75"] in shown
    assert ["1", "trec", "who", "1.0"] in shown
    best = Candidate(task="trec", label="who", probability=0.5)
    told = {"best": (best,), "belonging": (Belonging(probability=0.1, none=True),)}
    shown = rows(within.model_copy(update=told)._repr_html_())
    assert ["0", "trec", "who", "0.5"] in shown
    assert ["0", "0.1", "True"] in shown
    assert "world" not in str(shown)


def test_what_was_not_measured_of_a_task_is_not_in_json() -> None:
    """As it was stored before it had fields: homes of then open, programs read what they did."""
    stored = '{"zero_shot":0.2,"composed":0.5,"rows":40.0}'
    assert TaskAccuracy.model_validate_json(stored).model_dump_json() == stored
