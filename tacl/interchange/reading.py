"""Reads files of tensors without running any code in them."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tacl.errors import BadCheckpoint
from tacl.vectors.params import Params

PICKLED = (".pt", ".pth", ".bin", ".ckpt")  # PyTorch's own; read by its weights-only loader
FILES = (  # of a directory, the first of these that exists is read
    "model.safetensors",  # as transformers: an index beside it may be left of older parts
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "open_clip_pytorch_model.bin",
)
END = 56 + 20 + 22  # bytes of the records with which a large archive ends
NESTED = ("state_dict", "model")  # keys under which training programs save the weights


def read_tensors(path: Path) -> Params:
    """The tensors of a file or of a library's directory, by the names in it.

    Raises BadCheckpoint when there is no file, or it holds anything but tensors.
    """
    if path.is_dir():
        return read_tensors(_weights_of(path))
    if not path.is_file():
        raise BadCheckpoint(f"no checkpoint at {path.absolute()}")
    if path.name.endswith(".index.json"):
        return _sharded(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix in PICKLED:
        return _weights_only(path)
    raise BadCheckpoint(
        f"{path} is no checkpoint that can be read: give a .safetensors file, a PyTorch file of "
        f"plain tensors ({', '.join(PICKLED)}), or a directory of transformers, open_clip or timm"
    )


def _weights_of(folder: Path) -> Path:
    there = [folder / name for name in FILES if (folder / name).is_file()]
    there += sorted(folder.glob("*.safetensors"))
    if not there:
        raise BadCheckpoint(f"the directory {folder} has no weights: none of {', '.join(FILES)}")
    return there[0]


def _sharded(index: Path) -> Params:
    try:
        names = json.loads(index.read_text())["weight_map"].values()
        inside = {name for name in names if Path(name).name == name}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise BadCheckpoint(f"{index} is no index of weights: {error!r}") from error
    if len(inside) != len(set(names)):
        raise BadCheckpoint(f"{index} names files of other directories")
    shards = [_safetensors(index.parent / name) for name in sorted(inside)]
    return {key: value for shard in shards for key, value in shard.items()}


def _safetensors(path: Path) -> Params:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise BadCheckpoint(f"{path} is not a complete safetensors file: {error}") from error


def _weights_only(path: Path) -> Params:
    """The tensors of a PyTorch file, by the loader that creates nothing but tensors."""
    _require_unpacked(path)
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadCheckpoint(
            f"{path} holds more than tensors, which could be a program; it is not loaded. Save "
            "its state_dict() alone, or as safetensors"
        ) from error
    except Exception as error:  # foreign bytes raise a dozen types; all mean this
        raise BadCheckpoint(f"{path} is not a complete PyTorch file: {error}") from error
    nested = [found[name] for name in NESTED if isinstance(found, dict) and name in found]
    tensors = nested[0] if nested and not _is_tensors(found) else found
    if not _is_tensors(tensors):
        raise BadCheckpoint(f"{path} is no dictionary of tensors; save a model's state_dict()")
    odd = [name for name, value in tensors.items() if not _is_plain(value)]
    if odd:
        raise BadCheckpoint(
            f"{path} holds tensors that are sparse, quantised or not whole, such as {odd[:3]}; "
            "save plain ones"
        )
    return _unwrapped(tensors)


def _require_unpacked(path: Path) -> None:
    """Raises BadCheckpoint for a compressed file, which could become any size in memory; PyTorch
    writes none."""
    with path.open("rb") as stream:
        if stream.read(4) != b"PK\x03\x04":  # by which PyTorch, too, knows an archive
            return
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
            is_packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if is_packed or sum(member.file_size for member in members) > path.stat().st_size:
                raise BadCheckpoint(
                    f"{path} is compressed, and could become any size in memory; save it with "
                    "torch.save"
                )
            _require_one_reading(path, file)
    except (zipfile.BadZipFile, RuntimeError, ValueError, EOFError) as error:
        raise BadCheckpoint(f"{path} is not a complete PyTorch file: {error}") from error


def _require_one_reading(path: Path, file: zipfile.ZipFile) -> None:
    """Raises BadZipFile for an archive in which another reader, such as PyTorch's, may find other
    members: it ignores case in names, and begins to read from the end in another way."""
    members = file.infolist()
    names = {one.orig_filename.lower() for one in members}
    if len(names) < len(members) or any("\0" in name or "\\" in name for name in names):
        raise zipfile.BadZipFile("members have equal names, or \\0 or \\ in them; save it anew")
    for one in members:
        file.open(one).close()  # raises if its own header has another name
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - END, 0))
        locator = stream.read()[-42:-22]  # of a record for large archives, which precedes it
    moved = locator[:4] == b"PK\6\7" and int.from_bytes(locator[8:16], "little") != size - END
    begins = min((one.header_offset for one in members), default=0)  # 0, unless the list is another
    if moved or begins or file.comment:
        raise zipfile.BadZipFile("it may have two lists of members; save it anew")


def _is_plain(value: Tensor) -> bool:
    """Whether the file has each of its numbers: not one that stands for many, for example."""
    is_dense = value.layout is torch.strided and not (value.is_quantized or value.is_nested)
    is_here = is_dense and value.device.type == "cpu"
    return is_here and value.nbytes <= value.untyped_storage().nbytes()


def _is_tensors(found: Any) -> bool:
    return isinstance(found, Mapping) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    )


def _unwrapped(tensors: Mapping[str, Tensor]) -> Params:
    """The tensors without the prefix that parallel training adds to names."""
    wrapped = bool(tensors) and all(key.startswith("module.") for key in tensors)
    return {key.removeprefix("module.") if wrapped else key: v for key, v in tensors.items()}
