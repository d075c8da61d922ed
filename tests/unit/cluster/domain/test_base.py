"""Messages are shown short, in a shell and in a notebook."""

from __future__ import annotations

from cluster.domain.base import Base, BlobRef
from cluster.domain.tasks import Submitted
from cluster.domain.work import ClassReport, Evaluated


def test_what_is_empty_is_left_out_and_what_is_long_is_cut() -> None:
    submitted = Submitted(task="news", run_id="f" * 64, state="queued")
    assert repr(submitted).startswith("Submitted(task='news', run_id='fff")
    assert "notes" not in repr(submitted)
    assert repr(BlobRef(digest="ab12", rows=0)) == "BlobRef(digest='ab12', rows=0)"


def test_a_confusion_matrix_is_no_wall_of_numbers() -> None:
    some = tuple(f"class {i}" for i in range(150))
    halves, ones = (0.5,) * 150, (1,) * 150
    report = ClassReport(classes=some, accuracy=halves, f1=halves, confusion=(ones,) * 150)
    found = Evaluated(
        per_task={f"t{i}": {"composed": 0.5} for i in range(20)},
        absolute=0.5,
        normalized=0.5,
        class_incremental=0.5,
        by_class={f"t{i}": report for i in range(20)},
        seconds=1.0,
    )
    assert len(repr(found)) < 2500
    assert "absolute=0.5" in repr(found)


def test_a_notebook_shows_text_as_text() -> None:
    base = Base(spec="hf:<script>", digest="d", modality="text", head_kind="text")
    shown = base._repr_html_()
    assert "<th>spec</th><td>&#x27;hf:&lt;script&gt;&#x27;</td>" in shown
    assert "<script>" not in shown
