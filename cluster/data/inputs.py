"""The inputs of a data set that a model is asked about: every row checked, none left out."""

from __future__ import annotations

from cluster.data.bad_rows import Bad, require_good
from cluster.data.columns import find_input, marked_label
from cluster.data.labelled import checked
from cluster.data.sources import Data, opened
from cluster.domain.base import Modality
from cluster.storage.samples import Raw
from tacl.errors import BadConfig, BadSample


def inputs_of(data: Data, modality: Modality, input_column: str | None = None) -> list[Raw]:
    """Of its one split, in order; a column of classes is ignored. Raises BadConfig for several
    splits, BadSample for a bad row, and the errors of `opened` and `find_input`."""
    with opened(data, (input_column,)) as source:
        if len(source.splits) > 1:
            names = ", ".join(source.splits)
            raise BadConfig(f"the data have the splits {names}; give the rows of one")
        (split,) = source.splits.values()
        column = find_input(split, modality, input_column, marked_label(split))
        (found,) = checked(source.splits, column, modality, source, None).values()
    require_good([found], BadSample)
    return [raw for raw in found if not isinstance(raw, Bad)]
