"""Users and the recipes that are their models.

A composition that is more than a sum is made by a run. The user who requested it awaits it: when
the run ends, the transaction that records it makes it the user's model, unless they composed
something else meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from pydantic import TypeAdapter

from cluster.domain.base import PAGE
from cluster.domain.compositions import Composition, Fitted, Merged, RecipeTerm, Target
from cluster.domain.methods import model_of
from cluster.domain.status import OF_MODELS, STOPPED, RunState
from cluster.domain.work import Composed, ComposeWork
from cluster.registry.database import (
    Database,
    Request,
    chunks,
    equals_param,
    in_params,
    insert_once,
    put,
    upsert,
    value,
)
from cluster.registry.erasure import dismiss, owe_later, parts_of_model
from cluster.registry.journal import log
from cluster.registry.runs import (
    COLUMNS,
    RunRecord,
    add_run,
    end,
    is_done,
    queue_again,
    retry,
    run_of,
)
from cluster.registry.schema import AWAITED, COMPOSITION, EVENT, HOLDS, MADE, RUN, STRING, USER

_TERMS: TypeAdapter[tuple[RecipeTerm, ...]] = TypeAdapter(tuple[RecipeTerm, ...])
_MADE = (COMPOSITION, MADE.c.merged, MADE.c.target, MADE.c.fitted)
_MODELS = (
    sa.select(USER.c.name.label("user"), *_MADE)
    .join(COMPOSITION, COMPOSITION.c.digest == USER.c.composition)
    .join(MADE, MADE.c.digest == COMPOSITION.c.digest, isouter=True)
    .order_by(USER.c.name)
)
_RECIPES = sa.select(COMPOSITION.c.digest, COMPOSITION.c.terms, MADE.c.merged).join(
    MADE, MADE.c.digest == COMPOSITION.c.digest, isouter=True
)
# By EXISTS for each recipe: otherwise a list of all users would be made for every page.
_RECIPES_AFTER = (
    _RECIPES.where(sa.exists().where(USER.c.composition == COMPOSITION.c.digest))
    .where(COMPOSITION.c.digest > sa.bindparam("of_digest", type_=STRING))
    .order_by(COMPOSITION.c.digest)
    .limit(PAGE)
)

_MODELS_OF = _MODELS.where(in_params(USER.c.name))
_AWAITED_BY = sa.select(AWAITED.c.run_id).where(*equals_param(AWAITED.c.user))
_AWAITED = sa.select(AWAITED.c.run_id).where(in_params(AWAITED.c.run_id))
_SOMEBODYS = sa.select(RUN.c.run_id).join(USER, USER.c.composition == RUN.c.model)
_WANTED = _AWAITED.union(_SOMEBODYS.where(in_params(RUN.c.run_id)))
_STOPPED = sa.select(*COLUMNS).where(
    RUN.c.kind.in_(OF_MODELS),
    RUN.c.state.in_(STOPPED),
    RUN.c.run_id.in_(sa.select(AWAITED.c.run_id))
    | sa.exists().where(USER.c.composition == RUN.c.model),
)
_NUMBERS = sa.union(  # otherwise SQLite would scan the work of all stopped runs
    sa.select(RUN.c.number)
    .join(HOLDS, HOLDS.c.composition == RUN.c.model)
    .where(*equals_param(HOLDS.c.task)),
    sa.select(RUN.c.number).where(
        RUN.c.kind == "compose",
        RUN.c.state.in_(STOPPED),
        sa.exists().where(AWAITED.c.run_id == RUN.c.run_id),
    ),
)
_STOPPED_WITH = sa.select(*COLUMNS).where(RUN.c.state.in_(STOPPED), RUN.c.number.in_(_NUMBERS))
_THEIRS = sa.select(RUN.c.number).where(in_params(RUN.c.user))
_DONE = (  # by numbers: otherwise SQLite would scan everybody's
    sa.select(RUN.c.work, RUN.c.result)
    .where(RUN.c.kind == "compose", RUN.c.state == RunState.DONE, RUN.c.number.in_(_THEIRS))
    .order_by(RUN.c.number)
)


class Recipe(NamedTuple):
    """The stored recipe of a model; `merged`: set if it was merged into one vector. There may be a
    million, so nothing else of them is read."""

    digest: str
    terms: str
    merged: str | None


class ModelTable(Database):
    """Every user's current model."""

    def compose(self, model: Composition, request: Request) -> None:
        """Keep the recipe and make it the user's model; nothing else is awaited any more."""
        with self._write(request=request) as db:
            _keep(db, model)
            _take(db, model)

    def make(self, work: ComposeWork, anew: bool, request: Request) -> None:
        """Queue the run, also one that failed or was cancelled; its user awaits it from now on. The
        result of one that is done becomes the model at once, unless its files are gone (`anew`)."""
        with self._write(request=request) as db:
            add_run(db, work, None)
            retry(db, work.run_id)
            if anew:
                queue_again(db, work.run_id, "files of its result are gone")
            dismiss(db, AWAITED.c.user, [work.user])
            put(db, AWAITED, user=work.user, run_id=work.run_id)
            if result := value(db, RUN.c.result, run_id=work.run_id, state=RunState.DONE):
                _take(db, model_of(work, Composed.model_validate_json(result)))

    def composed(self, run_id: str, result: Composed) -> None:
        """The run is done: keep its model, which becomes the user's if that is still awaited."""
        with self._write() as db:
            if is_done(db, run_id):
                return
            work = run_of(end(db, run_id, result)).work
            assert isinstance(work, ComposeWork)
            model = model_of(work, result)
            _keep(db, model)
            merged = model.merged and model.merged.model_dump_json()
            target = model.target and model.target.model_dump_json()
            fitted = result.fitted and result.fitted.model_dump_json()
            made = {"merged": merged, "target": target, "fitted": fitted}
            insert_once(db, MADE, digest=model.digest, run_id=run_id, **made)
            log(db, "made", f"the {model.method} of {work.user}", None, run_id)
            if value(db, AWAITED.c.run_id, user=work.user) == run_id:
                _take(db, model)
            else:
                owe_later(db, parts_of_model(db, model.digest))

    def awaited_run(self, user: str) -> list[str]:
        """The run whose model becomes this user's; at most one."""
        return list(self._values(_AWAITED_BY, user=user))

    def still_wanted(self, run_ids: Collection[str]) -> set[str]:
        """The runs among these whose model a user awaits, or that evaluate a model that somebody
        has."""
        found = (self._values(_WANTED, run_id=these) for these in chunks(run_ids))
        return {run_id for some in found for run_id in some}

    def stopped_with(self, task: str) -> list[RunRecord]:
        """Runs that failed or were cancelled and name this task, of models that somebody has, had
        or awaits."""
        names = RUN.c.work.contains(f'"{task}"', autoescape=True)
        return [run_of(row) for row in self._rows(_STOPPED_WITH.where(names), task=task)]

    def stopped_and_wanted(self) -> list[RunRecord]:
        """All runs that failed or were cancelled and are wanted, as in `still_wanted`."""
        return [run_of(row) for row in self._rows(_STOPPED)]

    def compositions(self, *users: str) -> list[Composition]:
        """The current model of each of these users, by user's name."""
        return [_composition(row) for row in self._rows(_MODELS_OF, name=users)]

    def compositions_after(self, user: str) -> list[Composition]:
        """The next PAGE models, by user's name."""
        rows = self._rows(_MODELS.where(USER.c.name > user).limit(PAGE))
        return [_composition(row) for row in rows]

    def recipes_after(self, digest: str) -> list[Recipe]:
        """The next PAGE, by digest, of the recipes that are somebody's model now."""
        return [Recipe(*row) for row in self._rows(_RECIPES_AFTER, digest=digest)]

    def recipes_since(self, event: int) -> list[Recipe]:
        """Recipes that became somebody's model after the event of this number, each once."""
        taken = sa.select(EVENT.c.composition).where(EVENT.c.number > event)
        return [Recipe(*row) for row in self._rows(_RECIPES.where(COMPOSITION.c.digest.in_(taken)))]

    def requested_work(self, models: Sequence[Composition]) -> dict[str, ComposeWork]:
        """By user, the work that made this model of theirs, the latest of several. There is none
        for a sum, nor for a model that is being made anew."""
        wanted = {model.user: model.digest for model in models if model.method != "sum"}
        if not wanted:
            return {}
        found: dict[str, ComposeWork] = {}
        for row in self._rows(_DONE, user=wanted):
            work = ComposeWork.model_validate_json(row.work)
            made = model_of(work, Composed.model_validate_json(row.result))
            if made.digest == wanted[work.user]:
                found[work.user] = work
        return found

    def users_of(self, task: str) -> list[str]:
        """Users whose current model has a vector of this task, by name."""
        query = sa.select(USER.c.name).join(HOLDS, HOLDS.c.composition == USER.c.composition)
        return list(self._values(query.where(HOLDS.c.task == task).order_by(USER.c.name)))


def _keep(db: sa.Connection, model: Composition) -> None:
    terms = _TERMS.dump_json(model.terms).decode()
    if insert_once(db, COMPOSITION, digest=model.digest, method=model.method, terms=terms):
        for task in {term.vector.task for term in model.terms}:
            put(db, HOLDS, task=task, composition=model.digest)


def _take(db: sa.Connection, model: Composition) -> None:
    """Make it its user's model; what the previous one was made of may go."""
    owe_later(db, parts_of_model(db, value(db, USER.c.composition, name=model.user)))
    upsert(db, USER, {"name": model.user}, composition=model.digest)
    dismiss(db, AWAITED.c.user, [model.user])
    text = f"{model.user}: {model.digest}"
    put(db, EVENT, kind="composed", text=text, composition=model.digest)


def _composition(row: sa.Row) -> Composition:
    fitted = Fitted.model_validate_json(row.fitted) if row.fitted else None
    return Composition(
        digest=row.digest,
        user=row.user,
        method=row.method,
        terms=_TERMS.validate_json(row.terms),
        merged=row.merged and Merged.model_validate_json(row.merged),
        target=row.target and Target.model_validate_json(row.target),
        fitted=fitted.heads if fitted else (),
        novelty=fitted and fitted.novelty,
    )
