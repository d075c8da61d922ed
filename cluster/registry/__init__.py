"""The registry: everything that is kept, in SQL. Only the coordinator writes it; other processes of
the cluster may read it (`read_only`).

Every public write is one transaction and can be repeated: what is there already stays as it is.
Each kind of thing that is kept has a file, with its rows' class, its reads and its writes; what is
written within a larger transaction is a function of the connection there. `schema` has the tables,
`database` how they are opened.
"""

from __future__ import annotations

from cluster.registry.aliases import AliasTable
from cluster.registry.balance import Balance
from cluster.registry.compositions import ModelTable, Recipe
from cluster.registry.database import Request
from cluster.registry.effects import Found
from cluster.registry.erasure import Erasure
from cluster.registry.journal import Journal
from cluster.registry.run_times import Ran, RunTimes
from cluster.registry.runs import RunRecord
from cluster.registry.samples import SampleTable
from cluster.registry.schema import CANCELLED
from cluster.registry.tasks import TaskRecord, TaskTable
from cluster.registry.tokens import TokenRecord, TokenTable
from cluster.registry.vectors import Met, VectorRecord, VectorTable

__all__ = [
    "CANCELLED",
    "Found",
    "Met",
    "Ran",
    "Recipe",
    "Registry",
    "Request",
    "RunRecord",
    "TaskRecord",
    "TokenRecord",
    "VectorRecord",
]


class Registry(
    TaskTable,
    SampleTable,
    VectorTable,
    AliasTable,
    ModelTable,
    TokenTable,
    Erasure,
    Balance,
    RunTimes,
    Journal,
):
    """One database; see the module's docstring. `url`: as SQLAlchemy reads it."""
