"""Access to a Ray cluster: with its token or, with `--insecure`, without one.

Ray reads its settings when it is imported; what is set here holds for this process from then on,
and for the processes that it starts.
"""

from __future__ import annotations

import os
from typing import Any, cast

import grpc
from ray._private.grpc_utils import init_grpc_channel
from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore
from ray.core.generated.gcs_service_pb2 import CheckAliveRequest  # pyright: ignore
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
from ray.exceptions import AuthenticationError

from tacl.errors import BadConfig, ClusterNotRunning

SECONDS = 5.0
NO_PROXY = (("grpc.enable_http_proxy", 0),)


def authenticate(mode: str, token: str | None = None) -> None:
    """Set how this process authenticates. `mode`: token or disabled. `token`: path of its file;
    default: the first that exists of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH and ~/.ray/auth_token."""
    os.environ["RAY_AUTH_MODE"] = mode
    if token is not None:
        os.environ.pop("RAY_AUTH_TOKEN", None)  # it would have precedence
        os.environ["RAY_AUTH_TOKEN_PATH"] = token
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def use_token(address: str, insecure: bool) -> bool:
    """Authenticate from here on if the cluster at HOST:PORT requires it; returns whether it does.

    Raises BadConfig if it requires none and `insecure` is not set, or if this process has no token;
    ClusterNotRunning if nothing answers at the address.
    """
    if not asks_for_token(address):
        if not insecure:
            raise BadConfig(
                f"the Ray cluster at {address} asks nobody for a token: every process that reaches "
                "it could run programs on its nodes, read and change what this home keeps, and "
                "issue itself tokens of an administrator. Start Ray with RAY_AUTH_MODE=token on "
                "every node, with the same ~/.ray/auth_token; or accept it with --insecure."
            )
        return False
    authenticate("token")
    try:
        AuthenticationTokenLoader.instance().has_token()
    except AuthenticationError as error:
        raise BadConfig(
            f"the Ray cluster at {address} asks for a token, and there is none here; put its token "
            "into ~/.ray/auth_token, or name the file in RAY_AUTH_TOKEN_PATH"
        ) from error
    return True


def asks_for_token(address: str) -> bool:
    """Whether the cluster refuses a request without a token."""
    authenticate("disabled")
    opened: Any = init_grpc_channel(address, NO_PROXY)
    with opened as channel:
        try:
            NodeInfoGcsServiceStub(channel).CheckAlive(CheckAliveRequest(), timeout=SECONDS)
        except grpc.RpcError as error:
            call = cast(grpc.Call, error)
            if call.code() is grpc.StatusCode.UNAUTHENTICATED:
                return True
            raise ClusterNotRunning(
                f"the Ray cluster at {address} does not answer: {call.details()}"
            ) from error
    return False
