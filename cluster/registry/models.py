"""Users and the recipes that are their models."""

from __future__ import annotations

import sqlalchemy as sa
from pydantic import TypeAdapter

from cluster.messages import Composition, RecipeTerm
from cluster.registry.database import Database, exists
from cluster.registry.journal import Request, log, remember
from cluster.registry.schema import COMPOSITION, USER

_TERMS: TypeAdapter[tuple[RecipeTerm, ...]] = TypeAdapter(tuple[RecipeTerm, ...])


class Models(Database):
    """Every user's current model."""

    def compose(self, model: Composition, request: Request) -> None:
        """Keep the recipe and move the user's model to it."""
        with self._write() as db:
            if not exists(db, COMPOSITION.c.digest == model.digest):
                terms = _TERMS.dump_json(model.terms).decode()
                row = {"digest": model.digest, "method": model.method, "terms": terms}
                db.execute(COMPOSITION.insert().values(row))
            known = exists(db, USER.c.name == model.user)
            change = USER.update().where(USER.c.name == model.user) if known else USER.insert()
            db.execute(change.values(name=model.user, composition=model.digest))
            log(db, "composed", f"{model.user}: {model.digest}")
            remember(db, request)

    def compositions(self, *users: str) -> list[Composition]:
        """The current model of every user (of these), by name."""
        query = sa.select(USER.c.name.label("user"), COMPOSITION).join(
            COMPOSITION, COMPOSITION.c.digest == USER.c.composition
        )
        query = query.order_by(USER.c.name)
        with self._read() as db:
            rows = db.execute(query.where(USER.c.name.in_(users)) if users else query)
            return [_composition(row) for row in rows]

    def users_of(self, task: str) -> list[str]:
        """Whose current model holds a vector of this task."""
        return [
            model.user
            for model in self.compositions()
            if any(term.vector.task == task for term in model.terms)
        ]


def _composition(row: sa.Row) -> Composition:
    terms = _TERMS.validate_json(row.terms)
    return Composition(digest=row.digest, user=row.user, method=row.method, terms=terms)
