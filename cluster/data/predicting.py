"""Queries a model about all rows of a table, in several requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from cluster.data.answers import ROWS, Table
from tacl.errors import TooLarge, TooLate

BYTES = 24 << 20  # of the inputs of a request, of which a server reads at most 32 MiB

Inputs = Sequence[str | bytes]


def predicted(inputs: Inputs, ask: Callable[[Inputs], Table]) -> Table:
    """The answers of `ask` about all inputs, as one table. They all come from one model with the
    same heads: if the model or its heads change meanwhile, everything is requested again."""
    while True:
        tables = list(_answered(inputs, ask))
        if all(table.schema.metadata == tables[0].schema.metadata for table in tables):
            return pa.concat_tables(tables)


def _answered(inputs: Inputs, ask: Callable[[Inputs], Table]) -> Iterator[Table]:
    """The answers by request. If the inputs of a request are too large when decoded or take too
    long, which only the server knows, this request and later ones have at most half as many."""
    start, rows = 0, ROWS
    while start < len(inputs):
        part = inputs[start : start + fitting(inputs, start, rows)]
        try:
            yield ask(part)
        except (TooLarge, TooLate):
            if len(part) == 1:
                raise
            rows = len(part) // 2
        else:
            start += len(part)


def fitting(inputs: Inputs, start: int, most: int) -> int:
    """How many inputs from `start` on fit into a request, up to `most`; at least one."""
    size = 0
    for count, one in enumerate(inputs[start : start + most]):
        size += len(one if isinstance(one, bytes) else one.encode())
        if count and size > BYTES:
            return count
    return min(most, len(inputs) - start)


def as_stream(inputs: Inputs) -> bytes:
    """The inputs as an Arrow stream of one column."""
    kind = pa.binary() if isinstance(inputs[0], bytes) else pa.string()
    return written(pa.table({"input": pa.array(inputs, kind)}))


def written(table: Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def read(answer: bytes) -> Table:
    return pa.ipc.open_stream(answer).read_all()
