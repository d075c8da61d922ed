"""The program in a model's card runs as it is written, and answers as the model does."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.nn.functional import normalize

from cluster.client.model_card import Card, CardRow, text_of
from cluster.client.vector_card import VectorCard, text_of_vector
from cluster.domain.base import Base, Regime
from cluster.domain.compositions import Composition, RecipeTerm, Target
from cluster.domain.reports import VectorStatus
from cluster.domain.status import TaskDetail
from cluster.domain.tasks import Options, Submission, VectorRef
from cluster.domain.work import Evaluated, TaskAccuracy
from tacl.backbone import Backbone, load_backbone
from tacl.compose.materialized import materialized, materialized_features
from tacl.heads.columns import Columns
from tacl.heads.head import Head
from tacl.interchange.formats import Format
from tacl.interchange.writing import write_heads, write_model
from tests.support import bases, tiny

TEXT = "Which text is it?"  # as in the card


def card(backbone: Backbone, format: Format, regime: Regime = "linearized") -> Card:
    accuracy = {"zero_shot": 0.5, "individual": 0.9, "composed": 0.881, "materialized": 0.872}
    ref = VectorRef(
        task="trees",
        version=2,
        digest="d" * 64,
        blob="",
        head_blob="",
        run_id="",
        regime=regime,
    )
    term = RecipeTerm(coefficient=-0.5, vector=ref)
    row = CardRow(
        term=term,
        classes=("ash", "birch"),
        config={"penalty": "cyclical", "steps": 120, "seed": 0},
        train_rows=500,
        accuracy=TaskAccuracy(**accuracy, rows=300.0),
    )
    pooling = getattr(backbone.encoder, "pooling", None)
    return Card(
        model=Composition(digest="r" * 64, user="alice", terms=(term,)),
        format=format,
        base=Base(
            spec=str(backbone.spec),
            digest=backbone.digest,
            modality=backbone.modality,
            head_kind=backbone.head_kind,
        ),
        licence=None,
        measured=Evaluated(
            per_task={},
            absolute=0.881,
            normalized=1.0,
            class_incremental=None,
            task_unknown=0.703,
            materialized_unknown=0.655,
            frozen_known=0.801,
            seconds=1.0,
        ),
        materialized=0.872,
        rows=(row,),
        inputs={**backbone.inputs.description(), "pooling": pooling},
        answering=("trees", "signs"),
        out="alice",
    )


@pytest.mark.parametrize("format", ["transformers", "open_clip", "safetensors"])
def test_the_program_of_the_card(format: Format, tmp_path: Path) -> None:
    spec = f"hf:{bases.bert(tmp_path)}?size=32" if format == "transformers" else "embedded"
    backbone, folder = load_backbone(spec), tmp_path / "out"
    folder.mkdir()
    write_model(backbone, {}, format, folder)
    picture = tiny.pictures(1)[0][0]
    item = backbone.prepare(TEXT if format == "transformers" else picture)
    features = materialized_features(backbone, materialized(backbone.encoder, {}), [item])
    weight = normalize(torch.randn(4, features.shape[1]), dim=-1)
    heads = {
        "trees": Head(weight[:2], 20.0, ("ash", "birch")),
        "signs": Head(weight[2:4], 20.0, ("stop", "yield")),
    }
    subtracted = {"cars": Head(100 * normalize(features), 20.0, ("van",))}
    write_heads({**heads, **subtracted}, folder)
    (folder / "picture.png").write_bytes(picture)
    said = run(text_of(card(backbone, format)), folder).split()
    if format == "safetensors":
        assert int(said[0]) > 20
        return
    joint = {t: shares[0].tolist() for t, shares in Columns(heads).joint(features).items()}
    task = max(joint, key=lambda t: max(joint[t]))
    assert said[:2] == [task, heads[task].classes[joint[task].index(max(joint[task]))]]
    assert float(said[2]) == pytest.approx(max(joint[task]), abs=2e-3)


def run(text: str, folder: Path) -> str:
    program = text.partition("```python\n")[2].partition("```")[0]
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        exec(program, {})
    return said.getvalue()


def base_at(spec: str) -> Base:
    return Base(spec=spec, digest="b" * 64, modality="image", head_kind="prototype")


def test_a_card_says_what_its_commands_cannot_repeat() -> None:
    plain = card(load_backbone("embedded"), "open_clip")
    (row,) = plain.rows
    assert "`, as first made, from 500 training rows" in text_of(plain)
    assert "in the home of these versions. Elsewhere" in text_of(plain)
    ref = row.term.vector.model_copy(update={"parent": 1})
    said = text_of(changed(plain, "sum", vector=ref))
    assert "`, refreshed from v1, from 500 training rows" in said
    assert "which are not kept" not in said
    accepted = dataclasses.replace(plain, accepted=True, licence="cc by")
    assert "--format open_clip --licence 'cc by' --accept\n" in text_of(accepted)
    found = text_of(changed(plain, "grid", coefficient=-0.35))
    assert "tacl compose alice '-0.35*trees@v2'\n" in found  # a grid may find another factor of it
    merged = text_of(changed(plain, "ties"))
    assert "trees@v2' --method ties\n" in merged
    learned = text_of(changed(plain, "atlas", coefficient=1.0, by_block={"a": 0.25, "b": -1.5}))
    assert "| -1.5 to 0.25, by block |" in learned
    assert "tacl compose alice +trees@v2 --method atlas\n" in learned
    assert "which atlas learned for each block, are found again only with the --fit" in learned


def test_the_card_of_a_refreshed_vector_says_that_no_command_repeats_it() -> None:
    backbone = load_backbone("embedded")
    submission = Submission.model_construct(templates=("a leaf of {}", "a {}"))
    task = TaskDetail.model_construct(options=Options(seed=3), rows=500, submission=submission)
    fixed = {"task": "trees", "version": 2, "regime": "linearized", "digest": "d" * 64}
    fixed |= {"metrics": {}, "config": {}, "champion": False}

    def told(imported: bool = False, **more: object) -> str:
        parts: dict[str, Any] = fixed | {"parent": None} | more
        vector = VectorStatus.model_construct(**parts)
        base, classes = card(backbone, "timm").base, ("ash", "birch")
        return text_of_vector(VectorCard(base, vector, task, classes, imported, None, "trees"))

    assert 'tacl.load("embedded")\n' in told()
    assert "among the tasks that its home had then" in told()
    assert "made v2 of v1, against samples of the tasks" in told(parent=1)
    assert "no command repeats it elsewhere" in told(parent=1)
    prompts = "--template 'a leaf of {}' --template 'a {}'"
    assert f"tacl submit trees --data DATA --seed 3 {prompts}\n" in told(parent=1)
    assert "with the checkpoint that it was imported from" in told(imported=True)
    assert "tacl import trees CHECKPOINT --data DATA\n" in told(imported=True, parent=1)


def test_a_card_says_that_the_place_of_a_base_model_is_to_be_given(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    spec = f"hf:{tmp_path}"
    base = card(load_backbone("embedded"), "timm").base.model_copy(update={"spec": spec})
    fixed = {"task": "a", "version": 1, "regime": "linearized", "digest": "d", "parent": None}
    vector = VectorStatus.model_construct(**fixed, metrics={}, config={}, champion=False)  # pyright: ignore[reportArgumentType]
    task = TaskDetail.model_construct(options=Options(), rows=5, submission=None)
    told = text_of_vector(VectorCard(base, vector, task, ("a", "b"), False, None, "a"))
    assert f'tacl.load("hf:{tmp_path.name}")  # or where this model is on your machine\n' in told


def test_the_card_of_a_model_that_was_fitted_to_rows_says_what_of_them() -> None:
    plain = changed(card(load_backbone("embedded"), "timm"), "grid")
    target = Target(name="fitted", classes=("ham", "spam"), head_blob="")
    row = TaskAccuracy(zero_shot=0.5, composed=0.7, materialized=0.65, rows=40.0)
    said = text_of(
        dataclasses.replace(
            plain,
            model=plain.model.model_copy(update={"target": target}),
            measured=plain.measured.model_copy(update={"per_task": {"fitted": row}}),
        )
    )
    assert "| fitted | 2 | fitted | 50.0 | not measured | 70.0 | 65.0 | 40 |" in said
    assert "| mean of fitted, which it answers |" in said
    assert "name: fitted" in said
    assert "trees@v2' --method grid\n" in said
    assert "The head of fitted is found again only with the --fit" in said
    model = plain.model.model_copy(update={"target": target})
    unjudged = text_of(dataclasses.replace(plain, model=model))  # no rows of it were held out
    assert "| mean | | | | |" in unjudged


def changed(plain: Card, method: str, **term: object) -> Card:
    """The card of a model by another method, of another term."""
    (row,) = plain.rows
    row = dataclasses.replace(row, term=row.term.model_copy(update=term))
    model = plain.model.model_copy(update={"method": method, "terms": (row.term,)})
    return dataclasses.replace(plain, model=model, rows=(row,))


def test_what_a_card_says() -> None:
    backbone = load_backbone("embedded")
    text = text_of(card(backbone, "open_clip"))
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    metadata: Any = yaml.safe_load(head)
    assert (metadata["license"], metadata["library_name"]) == ("unknown", "open_clip")
    (result,) = metadata["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == 0.872
    line = next(line for line in body.splitlines() if line.startswith("| trees"))
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *("trees", "2", "-0.5", "50.0", "90.0", "88.1", "87.2", "300")
    ]
    assert "| exact model | 88.1 | 70.3 |" in body
    assert "| these files | 87.2 | 65.5 |" in body
    assert (
        "| a classifier on the frozen base, fitted on the same rows | 80.1 | not measured |" in body
    )
    assert "tacl compose alice '-0.5*trees@v2'" in body
    assert "base_model" not in metadata  # it came with TACL
    for said in ("an approximation", "penalty cyclical, steps 120", "d" * 64, backbone.digest):
        assert said in body
    assert "of the data of trees: unknown" in body
    there = dataclasses.replace(
        card(backbone, "timm"), base=base_at("timm:vit@/home/ann/w.pt?size=9")
    )
    assert "`timm:vit@w.pt?size=9`" in text_of(there)
    assert "/home/ann" not in text_of(there)
    hub = dataclasses.replace(card(backbone, "timm"), base=base_at("hf:org/model@main"))
    assert "`hf:org/model@main`" in text_of(hub)
    assert "base_model: org/model\n" in text_of(hub)
    exact = text_of(card(backbone, "open_clip", regime="ordinary"))
    assert "approximation" not in exact
    assert "the exact model" in exact


def test_two_versions_of_a_task_are_one_line_of_the_table() -> None:
    one = card(load_backbone("embedded"), "open_clip")
    (row,) = one.rows
    earlier = row.term.vector.model_copy(update={"version": 1})
    other = dataclasses.replace(row, term=RecipeTerm(coefficient=0.7, vector=earlier))
    text = text_of(dataclasses.replace(one, rows=(row, other)))
    assert "| trees | 2 | -0.5 (v2), 0.7 (v1) |" in text
    assert text.count("- trees: ash, birch\n") == 1
    assert "moved by 2 task vectors" in text
