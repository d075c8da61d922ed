"""A home is its owner's alone."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from cluster.coordinator import garbage
from cluster.domain.base import Base, BlobRef
from cluster.registry import Registry
from cluster.runtime.doctor import damage
from cluster.storage import home as homes
from cluster.storage.home import Founding, Home, Settings, require_founder
from tacl.errors import BadConfig, HomeInUse
from tests.support.fakes import new_home
from tests.support.lost import make_old


def test_a_home_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    home = Home(tmp_path / "above" / "home")
    home.close_to_others()
    assert home.path.stat().st_mode & 0o777 == 0o700
    home.path.chmod(0o755)
    home.close_to_others()
    assert home.path.stat().st_mode & 0o077 == 0


def test_settings_that_were_damaged_are_said_to_be(tmp_path: Path) -> None:
    """Beside the home, or where its storage has them for every node."""
    (tmp_path / "settings.json").write_bytes(b'{"base": "\xff"}')
    for home in (Home(tmp_path), Home(tmp_path / "node", tmp_path.as_uri())):
        with pytest.raises(BadConfig, match=r"settings\.json.* cannot be read"):
            home.settings()


def test_what_a_killed_head_left_damaged_keeps_no_cluster_from_starting(tmp_path: Path) -> None:
    """Every start makes it anew. Of a head that lives it is said, and what to do."""
    home = Home(tmp_path / "a home")
    home.path.mkdir()
    home.running_file.write_text("{")
    assert home.running() is None
    with home.lock():
        assert home.running() is None
        home.running_file.write_text("{")
        with pytest.raises(BadConfig, match=f"then start it again: tacl up --home '{home.path}'"):
            home.running()


def test_a_home_in_a_bucket_has_its_part_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable says as little as none."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    usual = Home.at("s3://bucket/home")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert Home.at("s3://bucket/home") == usual
    assert usual.path.is_relative_to(Path.home() / ".cache")


def settings_of(folder: Path) -> Settings:
    base = Base(spec="fake:encoder", digest="ba5e", modality="image", head_kind="text")
    return Settings(base=base, generic=BlobRef(digest="0" * 64, rows=1), blobs=str(folder))


def test_what_has_no_name_is_not_the_storage_or_registry_of_a_home_without(tmp_path: Path) -> None:
    homes.write(Home(tmp_path).settings_file, settings_of(tmp_path))
    for chosen in (Founding(storage=""), Founding(registry=""), Founding(registry="/")):
        with pytest.raises(HomeInUse, match="in its own directory"):
            require_founder(Home(tmp_path), chosen)


def test_a_home_of_before_whose_registry_has_a_secret_shows_it_to_nobody(tmp_path: Path) -> None:
    secret = {"registry": "postgresql://u@h/x?sslpassword=secret"}
    homes.write(Home(tmp_path).settings_file, settings_of(tmp_path).model_copy(update=secret))
    with pytest.raises(HomeInUse, match="has the registry postgresql://u@h/x; postgres") as refused:
        require_founder(Home(tmp_path), Founding(registry="postgresql://u@other/x"))
    assert "secret" not in str(refused.value)
    require_founder(Home(tmp_path), Founding(registry="postgresql://u@h/x"))  # it is that one


def test_a_copy_of_a_home_collects_no_garbage_in_the_original(tmp_path: Path) -> None:
    original, copy = new_home(tmp_path / "home"), Home(tmp_path / "copy")
    shutil.copytree(original.path, copy.path)
    newer = original.blobs().put(b"a vector that the copy does not know")
    make_old(original.blobs().local_path(newer))
    with closing(Registry(copy.registry_url)) as registry:
        assert garbage.scan(copy, registry).blobs == []
    garbage.delete(copy, {newer})
    garbage.remove(copy, {newer})
    assert original.blobs().read(newer)
    own = copy.blobs().put(b"of the copy")
    assert not original.blobs().exists(own)


def test_a_home_that_was_renamed_finds_its_blobs(tmp_path: Path) -> None:
    kept = new_home(tmp_path / "home").blobs().put(b"a vector")
    (tmp_path / "home").rename(tmp_path / "renamed")
    home = Home(tmp_path / "renamed")
    assert home.blobs().read(kept) == b"a vector"
    assert list(damage(home)) == []
    assert not (tmp_path / "home").exists()
