"""What writing a model tells the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import bases


def test_nothing_is_warned_of_while_a_model_is_written(tmp_path: Path) -> None:
    """In a process of its own: what warns does so when it is imported."""
    spec, out = f"hf:{bases.bert(tmp_path)}?size=32", tmp_path / "out"
    out.mkdir()
    program = (
        "from pathlib import Path\n"
        "from tacl.backbone import load_backbone\n"
        "from tacl.interchange.writing import write_model\n"
        f"write_model(load_backbone({spec!r}), {{}}, 'transformers', Path({str(out)!r}))"
    )
    told = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    done = subprocess.run([sys.executable, "-c", program], env=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").is_file()
    assert "WARNING" not in done.stdout + done.stderr
