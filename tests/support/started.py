"""A Ray cluster of several nodes in this process."""

from __future__ import annotations

from typing import Any


def started(**head: Any) -> Any:
    """With its head alone, and without what watches it. Ray forks while threads of a cluster before
    may call into gRPC; a child that such a fork leaves stuck never says its port, and the next one
    does."""
    from ray.cluster_utils import Cluster

    head |= {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    try:
        return Cluster(initialize_head=True, head_node_args=head)
    except RuntimeError as error:
        if "Timed out waiting for file" not in str(error):
            raise
        return Cluster(initialize_head=True, head_node_args=head)
