"""Chooses for Serve the replica that a call goes to, in the process that makes the call."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from cluster.api.service import Question
from cluster.serving.routing import keeper, ranked


class Replicas:
    """Names of the predictors that this process may call now, as Serve reports them."""

    names: tuple[str, ...] = ()

    def set(self, replicas: Iterable[ReplicaID]) -> None:
        self.names = tuple(sorted(replica.unique_id for replica in replicas))


RUNNING = Replicas()


class AffinityRouter(RequestRouter):
    """Sends a call to the keeper of the model of its first question (`cluster.serving.routing`);
    all questions of a call have one keeper."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        replicas = {one.replica_id.unique_id: one for one in candidate_replicas}
        known = self.replica_queue_len_cache
        ongoing = {name: known.get(one.replica_id) or 0 for name, one in replicas.items()}
        wanted = ""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # if no replica takes it
            questions: list[Question] = pending_request.args[0]
            wanted = keeper(questions[0].model, tuple(sorted(replicas)))
        return [[replicas[n] for n in rank] for rank in ranked(wanted, ongoing, random.sample)]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        RUNNING.set(self.curr_replicas)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        RUNNING.set(self.curr_replicas)
