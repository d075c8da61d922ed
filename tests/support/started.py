"""A Ray cluster of several nodes in this process.

Ray forks while threads of a cluster before may call into gRPC; a child that such a fork leaves
stuck never says that it is there, and the next one does.
"""

from __future__ import annotations

from typing import Any

import psutil


def started(**head: Any) -> Any:
    """With its head alone, and without what watches it."""
    from ray.cluster_utils import Cluster

    head |= {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    try:
        return Cluster(initialize_head=True, head_node_args=head)
    except RuntimeError as error:
        if "Timed out waiting for file" not in str(error):
            raise
        return Cluster(initialize_head=True, head_node_args=head)


def joined(cluster: Any, **node: Any) -> Any:
    """The node that joined it."""
    before = set(psutil.Process().children())
    try:
        return cluster.add_node(**node)
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        for stuck in set(psutil.Process().children()) - before:
            stuck.kill()
        return cluster.add_node(**node)
