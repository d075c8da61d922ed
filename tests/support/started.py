"""A Ray cluster of several nodes in this process.

Ray forks while threads of an earlier cluster may be in calls of gRPC. A child of such a fork may
hang without ever reporting that it runs; a second attempt succeeds.
"""

from __future__ import annotations

from typing import Any

import psutil


def started(**head: Any) -> Any:
    """A cluster with only its head, and without monitoring processes."""
    from ray.cluster_utils import Cluster

    head |= {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    try:
        return Cluster(initialize_head=True, head_node_args=head)
    except RuntimeError as error:
        if "Timed out waiting for file" not in str(error):
            raise
        return Cluster(initialize_head=True, head_node_args=head)


def joined(cluster: Any, **node: Any) -> Any:
    """Add a node to the cluster and return it."""
    before = set(psutil.Process().children())
    try:
        return cluster.add_node(**node)
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        for stuck in set(psutil.Process().children()) - before:
            stuck.kill()
        return cluster.add_node(**node)
