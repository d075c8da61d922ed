"""The registry: everything that is kept, in SQL. Only the coordinator writes it; others of the
cluster's processes may read it (`read_only`).

Every public write is one transaction and can be repeated: what is there already stays as it is.
One file for each kind of thing that is kept, with its rows' class, its reads and its writes; what
is written within a larger transaction is a function of the connection there. `schema` has the
tables, `database` how they are opened.
"""

from __future__ import annotations

from cluster.registry.aliases import Aliases
from cluster.registry.balance import Balance
from cluster.registry.compositions import Models
from cluster.registry.effects import Found
from cluster.registry.erasure import Erasure
from cluster.registry.journal import Journal, Request
from cluster.registry.ran import Ran, RunTimes
from cluster.registry.runs import Run
from cluster.registry.samples import Samples
from cluster.registry.schema import CANCELLED
from cluster.registry.tasks import Task, Tasks
from cluster.registry.tokens import Token, Tokens
from cluster.registry.vectors import Met, Vector, Vectors

__all__ = [
    "CANCELLED",
    "Found",
    "Met",
    "Ran",
    "Registry",
    "Request",
    "Run",
    "Task",
    "Token",
    "Vector",
]


class Registry(
    Tasks, Samples, Vectors, Aliases, Models, Tokens, Erasure, Balance, RunTimes, Journal
):
    """One database; see the module's docstring. `url` as SQLAlchemy reads it."""
