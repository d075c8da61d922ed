"""What people give a client is checked before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.client.arguments import raw_input
from tacl.errors import BadSample


def test_the_name_of_a_file_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mail.txt", "mail"):
        (tmp_path / name).write_text("Stocks fell.")
    with pytest.raises(BadSample, match=r'mail\.txt is a file.*ask "\$\(cat mail\.txt\)"'):
        raw_input("mail.txt", "text")
    for text in ("mail", "other.txt", "Stocks fell on Monday.", "long " * 100 + "mail.txt"):
        assert raw_input(text, "text") == text
