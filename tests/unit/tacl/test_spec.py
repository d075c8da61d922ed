"""Names of base models."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacl.errors import BadBase, BaseNotFound
from tacl.spec import BaseSpec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("embedded", BaseSpec("embedded")),
        ("hf:org/model", BaseSpec("hf", "org/model")),
        ("hf:org/model@main", BaseSpec("hf", "org/model", "main")),
        ("hf:../odd@name/x?size=64", BaseSpec("hf", "../odd@name/x", None, 64)),
        ("open_clip:ViT-B-32@openai", BaseSpec("open_clip", "ViT-B-32", "openai")),
        ("timm:net@a/b@c.safetensors?size=96", BaseSpec("timm", "net", "a/b@c.safetensors", 96)),
    ],
)
def test_specs_are_read_and_written(text: str, spec: BaseSpec) -> None:
    assert BaseSpec.parse(text) == spec
    assert str(spec) == text


@given(
    st.sampled_from(["hf", "open_clip", "timm"]),
    st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True),
    st.none() | st.from_regex(r"[a-zA-Z0-9_./-]{1,8}", fullmatch=True),
    st.none() | st.integers(1, 99999),
)
def test_specs_survive_writing_and_reading(
    scheme: str, name: str, weights: str | None, size: int | None
) -> None:
    spec = BaseSpec(scheme, name, weights, size)
    assert BaseSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    ["", "x", "resnet:18", "hf:", "timm:net@", "embedded:x", "hf:a?size=0", "hf:a?size=x",
     "hf:a?colour=1", "hf:a?"],
)  # fmt: skip
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(BadBase) as caught:
        BaseSpec.parse(text)
    assert repr(text) in str(caught.value)


def test_a_spec_is_placed_where_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "net.pt").touch()
    (tmp_path / "main").touch()
    (tmp_path / "w.safetensors").touch()
    for folder in ("odd@name", "org/model", "ViT-B-32", "openai"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for text, placed in (
        ("embedded", "embedded"),
        ("hf:encoder?size=64", f"hf:{tmp_path}/encoder?size=64"),
        ("hf:odd@name?size=64", f"hf:{tmp_path}/odd@name?size=64"),
        ("open_clip:odd@name", f"open_clip:{tmp_path}/odd@name"),
        ("hf:org/other@main", "hf:org/other@main"),  # a revision on a hub
        ("hf:org/model", f"hf:{tmp_path}/org/model"),
        ("open_clip:ViT-B-32@openai", "open_clip:ViT-B-32@openai"),  # a tag
        ("open_clip:ViT-B-32@w.safetensors", f"open_clip:ViT-B-32@{tmp_path}/w.safetensors"),
        ("open_clip:ViT-B-32@./net.pt", f"open_clip:ViT-B-32@{tmp_path}/net.pt"),
        ("timm:net@net.pt?size=96", f"timm:net@{tmp_path}/net.pt?size=96"),
    ):
        assert str(BaseSpec.parse(text).placed()) == placed
    endless = "x" * 300
    for text in (f"hf:{endless}", f"hf:{endless}@y", f"open_clip:{endless}@y"):
        assert str(BaseSpec.parse(text).placed()) == text
    for text in (
        f"hf:./{endless}",
        f"timm:net@{endless}",
        "hf:./no",
        "hf:~no/x",
        "open_clip:ViT-B-32@~/no.pt",
        "timm:net@no.pt",
    ):
        with pytest.raises(BaseNotFound, match="there is no file or folder /"):
            BaseSpec.parse(text).placed()
    with pytest.raises(BadBase, match=r"org/model has the name .* no revisions; leave @main out"):
        BaseSpec.parse("hf:org/model@main").placed()
