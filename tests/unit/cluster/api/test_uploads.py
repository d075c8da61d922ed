"""A data set that was sent along."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from fastapi import UploadFile

from cluster.api.uploads import laid_down
from tests.support.api_scene import Local


def test_it_lies_where_what_killed_processes_leave_is_deleted(tmp_path: Path) -> None:
    """Among the temporary files of the system it would stay for ever."""

    async def lie() -> None:
        service, sent = Local(tmp_path), UploadFile(io.BytesIO(b"rows"), filename="Data.CSV")
        drafts = service.home / "cache" / "drafts"
        async with laid_down(sent, service) as place:
            assert (place.suffix, place.read_bytes()) == (".csv", b"rows")
            assert place.is_relative_to(drafts)
        assert not [*drafts.iterdir()]

    asyncio.run(lie())
