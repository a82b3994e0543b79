"""Whether the engine behind the middleware still works on a request, so that a slot is freed when it has really let go.

vLLM answers an abandoned request before its engine has dropped it. The view looks into the request table of its client object
(`output_processor.external_req_ids`, vLLM 0.29 to 0.33); a server without one is given a short grace instead.
"""

import asyncio
from typing import Any

POLL_S = 0.005
GRACE_S = 0.05
"""The engine takes aborts between two of its steps; one step of a small model is well below this."""


async def wait_until_gone(app: Any, request_id: str, *, timeout_s: float) -> bool:
    """Wait until the engine of the ASGI application `app` holds nothing of `request_id`; False when it still did at the end."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while holds(app, request_id):
        if loop.time() > end:
            return False
        await asyncio.sleep(POLL_S)
    await asyncio.sleep(GRACE_S)
    return True


def holds(app: Any, request_id: str) -> bool:
    """Whether the request table names `request_id`; False when there is no such table."""
    client = getattr(getattr(app, "state", None), "engine_client", None)
    table = getattr(getattr(client, "output_processor", None), "external_req_ids", None)
    return table is not None and any(request_id in str(name) for name in table)
