"""Answers queries of the command line: by the predictors of the server if one runs, else by an
actor that loads its base model at the first question."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cluster.api.limits import EXPLAINED_ROWS, INPUTS
from cluster.api.service import Answered, Question
from cluster.runtime import local_socket, served
from cluster.runtime.logs import log_to
from cluster.storage.home import Home
from tacl.errors import TooLarge

if TYPE_CHECKING:
    from cluster.serving.predictor import Predictor


class LazyPredictor:
    """The actor around a Predictor, which a client can name without importing torch."""

    def __init__(self, home: str) -> None:
        log_to(Home.at(home).logs, "serving")
        self._home = home

    def ask(self, question: Question) -> Answered:
        return self._predictor.ask(question)

    @cached_property
    def _predictor(self) -> Predictor:
        from cluster.serving.predictor import Predictor

        return Predictor(self._home)


class HomePredictor:
    """The predictor of a home; without a server, the first call of any client starts it."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def ask(self, question: Question) -> Answered:
        served.running(self._home)
        few = len(question.inputs) <= INPUTS
        if few and (len(question.inputs) == 1 or question.rows <= EXPLAINED_ROWS):
            # Larger questions go to the actor, so that the server's users do not wait for them.
            with suppress(local_socket.NoListener, TooLarge):
                where = Home.at(self._home.where).path
                return local_socket.ask(where, "predict", [question], local_socket.PREDICTORS)
        from cluster.runtime.connection import call_with_retries

        return call_with_retries(self._home, self._actor, "ask", [question])

    def _actor(self) -> Any:
        import ray

        from cluster.runtime.connection import NAMESPACE

        remote: Any = ray.remote(LazyPredictor)
        return remote.options(
            name="predictor",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
        ).remote(self._home.where)
