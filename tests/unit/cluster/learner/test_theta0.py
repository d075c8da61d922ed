"""theta0 of all processes of a home is one file: the same numbers, and nobody writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cluster.learner.artifacts import Materials
from cluster.learner.theta0 import share
from tacl.backbone import load_backbone
from tacl.vectors import params
from tests.support import tiny


def maps(file: Path) -> bool:
    """Whether this process does."""
    return str(file) in Path("/proc/self/maps").read_text()


def test_the_numbers_are_those_that_were_loaded_and_lie_in_one_file(tmp_path: Path) -> None:
    spec, folder = tiny.base(tmp_path), tmp_path / "bases"
    own, first, second = (load_backbone(spec) for _ in range(3))
    share(first, folder)
    file = folder / own.digest
    written = file.stat().st_mtime_ns
    share(second, folder)
    assert (list(folder.iterdir()), file.stat().st_mtime_ns) == ([file], written)
    assert maps(file)
    for one in (first, second):
        assert params.digest(one.encoder.state_dict()) == params.digest(own.encoder.state_dict())
        assert all(value.data_ptr() % 64 == 0 for value in one.encoder.parameters())
    batch = own.collate([own.prepare(image) for image in tiny.pictures(4)[0]])
    with torch.no_grad():
        assert torch.equal(own.encoder(batch), second.encoder(batch))


@pytest.mark.parametrize("damaged", [b"", b"short", None])
def test_a_file_that_says_something_else_is_written_again(
    tmp_path: Path, damaged: bytes | None
) -> None:
    backbone, folder = load_backbone(tiny.base(tmp_path)), tmp_path / "bases"
    share(backbone, folder)
    file, before = folder / backbone.digest, params.digest(backbone.encoder.state_dict())
    whole = file.read_bytes()
    file.unlink()  # whoever maps it has it still
    file.write_bytes(bytes(len(whole)) if damaged is None else damaged)
    again = load_backbone(tiny.base(tmp_path))
    share(again, folder)
    assert file.read_bytes() == whole
    assert before == params.digest(again.encoder.state_dict())
    assert before == params.digest(backbone.encoder.state_dict())


def test_where_no_file_can_be_written_each_has_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backbone, folder = load_backbone(tiny.base(tmp_path)), tmp_path / "bases"
    folder.write_text("in the way")
    before = params.digest(backbone.encoder.state_dict())
    share(backbone, folder)
    assert before == params.digest(backbone.encoder.state_dict())
    assert "theta0 is not shared with other processes" in caplog.text


def test_what_is_written_into_it_stays_in_this_process(tmp_path: Path) -> None:
    backbone, folder = load_backbone(tiny.base(tmp_path)), tmp_path / "bases"
    share(backbone, folder)
    whole = (folder / backbone.digest).read_bytes()
    with torch.no_grad():
        for value in backbone.encoder.parameters():
            value.zero_()
    assert (folder / backbone.digest).read_bytes() == whole


def test_work_of_a_home_has_its_base_from_there(tmp_path: Path) -> None:
    home = tiny.home(tmp_path / "home")
    base = home.founded().base
    materials = Materials(home, base)
    assert maps(home.path / "cache" / "bases" / base.digest)
    with pytest.raises(Exception, match="the weights or the preprocessing have changed"):
        Materials(home, base.model_copy(update={"digest": "0" * 64}))
    assert [one.name for one in (home.path / "cache" / "bases").iterdir()] == [base.digest]
    assert materials.backbone.digest == base.digest
