"""Where the ranks of a group meet: in a file if all run on this machine, otherwise on the interface
of their nodes.

On one machine, Ray would have them meet at a port of rank 0, which torch opens on every interface
(`TCPStore`): anyone who can reach it can write what the ranks read of each other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import psutil
import ray
import ray.util
from ray.train.torch import TorchConfig
from ray.train.torch.config import (
    _set_torch_distributed_env_vars,
    _setup_torch_process_group,
    _TorchBackend,
)


class OnNodes(TorchConfig):
    """Makes gloo listen on the interface of the node's address; by default it uses the address of
    the host's name, which on many machines is a loopback address."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _OnNodes


class _OnNodes(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_name_interface)
        super().on_start(worker_group, backend_config)


def _name_interface() -> None:
    if (name := interface_of(ray.util.get_node_ip_address())) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_of(address: str) -> str | None:
    """The name of this machine's interface with the address; None if there is none."""
    for name, found in psutil.net_if_addrs().items():
        if any(one.address == address for one in found):
            return name
    return None


@dataclass
class InFile(TorchConfig):
    """Meeting in the file `path`, which must not exist yet, in an existing directory."""

    path: str = ""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _InFile


class _InFile(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_set_torch_distributed_env_vars)
        worker_group.execute(_name_no_port)
        group = {
            "backend": backend_config.backend,
            "world_size": len(worker_group),
            "init_method": f"file://{backend_config.path}",  # torch does not unescape URIs
            "timeout_s": backend_config.timeout_s,
        }
        join = _setup_torch_process_group
        ranks = range(len(worker_group))
        ray.get([worker_group.execute_single_async(i, join, world_rank=i, **group) for i in ranks])


def _name_no_port() -> None:
    """Sets both variables, as DeepSpeed reads them, though it uses them only for its own groups."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
