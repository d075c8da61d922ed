"""Rows and labels as programs give them, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tacl.data.batches import require_one_each
from tacl.errors import BadColumns, BadSample, EmptySplit, LabelOutOfRange


def rows_of(inputs: Any, *, of_one_shape: bool = True) -> list[Tensor]:
    """The rows of a tensor [N, ...] or a sequence of tensors, without their graph. Texts differ in
    length: they are not `of_one_shape`.

    Raises BadColumns unless these are tensors that make a batch, EmptySplit for no rows, BadSample
    for a row with NaN or infinities.
    """
    scalar = isinstance(inputs, Tensor) and not inputs.ndim
    if scalar or isinstance(inputs, str | bytes) or not isinstance(inputs, Iterable):
        found = "a single number" if scalar else type(inputs).__name__
        raise BadColumns(f"rows are a tensor [N, ...] or a list of tensors, and {found} was given")
    items = list(inputs)
    if not items:
        raise EmptySplit("no rows were given; at least one is needed")
    for number, item in enumerate(items):
        if not isinstance(item, Tensor):
            raise BadColumns(
                f"row {number} is {type(item).__name__}, and rows are tensors: torch.as_tensor "
                "makes one of numbers, base.prepare of a text or a picture"
            )
        shape, first = list(item.shape), list(items[0].shape)
        if not item.numel():
            raise BadColumns(f"row {number} is empty, {shape}; leave it out")
        if len(shape) != len(first) or (of_one_shape and shape != first):
            raise BadColumns(f"row {number} is {shape} and row 0 {first}; give rows of one shape")
    finite = torch.stack([item.isfinite().all() for item in items])
    if not finite.all():
        bad = (~finite).nonzero().flatten().tolist()
        raise BadSample(
            f"row {bad[0]} holds NaN or infinities, as do {len(bad) - 1} others of {len(items)}; "
            "mend or drop them"
        )
    return [item.detach() for item in items]


def class_numbers(labels: Any, rows: int, classes: int) -> Tensor:
    """Labels as int64 [rows], on the CPU.

    Raises LabelOutOfRange unless they are whole numbers from 0 to `classes` - 1, one for each row.
    """
    try:
        found = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise LabelOutOfRange(
            f"labels are the int64 numbers of classes, and these are no tensor: {error}"
        ) from error
    require_one_each(rows, found)
    if found.is_floating_point() or found.is_complex():
        raise LabelOutOfRange(
            f"labels are {found.dtype}; give the int64 numbers of classes, such as labels.long()"
        )
    found = found.detach().long().cpu()
    if rows and not 0 <= int(found.min()) <= int(found.max()) < classes:
        raise LabelOutOfRange(f"labels {found.min()}..{found.max()} for {classes} classes")
    return found
