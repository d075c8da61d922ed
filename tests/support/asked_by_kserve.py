"""Queries a server with KServe's client, in the Python environment of that client; prints JSON.

`python asked_by_kserve.py URL USER TOKEN TEXT...`
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx  # pyright: ignore[reportMissingImports]
import numpy as np
from kserve import (  # pyright: ignore[reportMissingImports]
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)


async def asked(url: str, user: str, token: str, *texts: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"}
    tensor = InferInput("text", [len(texts), 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text] for text in texts], object), binary_data=False)
    request = InferRequest(user, [tensor], request_id="7")
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        told: dict[str, Any] = {
            "live": await client.is_server_live(url),
            "ready": await client.is_server_ready(url),
            "model": await client.is_model_ready(url, user, headers=headers),
            "nobody": await client.is_model_ready(url, "nobody", headers=headers),
        }
        found = await client.infer(url, request, model_name=user, headers=headers)
        try:
            await client.infer(url, request, model_name=user)
        except httpx.HTTPStatusError as error:
            told["without a token"] = str(error)
    outputs = {one.name: (one.datatype, one.as_numpy().tolist()) for one in found.outputs}
    return told | {"id": found.id, "model_name": found.model_name, "outputs": outputs}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asked(*sys.argv[1:]))))
