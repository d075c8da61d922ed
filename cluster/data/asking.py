"""Asking a model about all rows of a table, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from cluster.data.answers import ROWS, Table
from tacl.errors import TooLarge

BYTES = 24 << 20  # of the inputs of a request: a server reads no more than 32 MiB of one

Inputs = Sequence[str | bytes]


def predicted(inputs: Inputs, ask: Callable[[Inputs], Table]) -> Table:
    """What `ask` answers about all of them. All answers are of one model: where it became another
    meanwhile, everything is asked again."""
    tables = [table for part in parts(inputs) for table in _answered(part, ask)]
    if any(table.schema.metadata != tables[0].schema.metadata for table in tables):
        return predicted(inputs, ask)
    return pa.concat_tables(tables)


def _answered(part: Inputs, ask: Callable[[Inputs], Table]) -> Iterator[Table]:
    """In halves where it is too large when decoded, which only the server knows."""
    try:
        yield ask(part)
    except TooLarge:
        if len(part) == 1:
            raise
        half = len(part) // 2
        yield from _answered(part[:half], ask)
        yield from _answered(part[half:], ask)


def parts(inputs: Inputs) -> Iterator[Inputs]:
    """As many as fit into a request, in order."""
    start, size = 0, 0
    for place, one in enumerate(inputs):
        length = len(one if isinstance(one, bytes) else one.encode())
        if place > start and (place - start == ROWS or size + length > BYTES):
            yield inputs[start:place]
            start, size = place, 0
        size += length
    yield inputs[start:]


def as_stream(inputs: Inputs) -> bytes:
    """One column of Arrow."""
    kind = pa.binary() if isinstance(inputs[0], bytes) else pa.string()
    rows = pa.table({"input": pa.array(inputs, kind)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as written:
        written.write_table(rows)
    return sink.getvalue().to_pybytes()


def read(answer: bytes) -> Table:
    return pa.ipc.open_stream(answer).read_all()
