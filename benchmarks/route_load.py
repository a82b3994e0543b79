"""Load on a route, made by Locust: requests arrive as a Poisson stream whether or not earlier ones were answered (open loop).

Run:  LOAD='{"rate": 8, "count": 160, "bodies": ["{…}"], "out": "load.json"}' \
      locust -f benchmarks/route_load.py --headless -H http://127.0.0.1:8077/v1 -u 160 -r 160 -t 20s --stop-timeout 120

`benchmarks/bench_route.py` starts it so. Each user waits for its moment (seeded), asks once, and is done. Out comes one
JSON object: milliseconds of accepted (200) and refused (429, 503) answers, and how many were lost.
"""

import itertools
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import gevent
from locust import FastHttpUser, events, task
from locust.exception import StopUser

LOAD = json.loads(os.environ["LOAD"])
NUMBERS = itertools.count()
DRAW = random.Random(17)
WARM_UP_S = 1.0
STARTED = time.monotonic() + WARM_UP_S
MOMENTS = list(itertools.accumulate(DRAW.expovariate(LOAD["rate"]) for _ in range(LOAD["count"])))
ENDS: dict[str, list[float]] = {"accepted": [], "refused": [], "lost": []}


class Caller(FastHttpUser):
    """One request at its moment."""

    connection_timeout = network_timeout = 120.0

    @task
    def ask(self) -> None:
        number = next(NUMBERS)
        gevent.sleep(max(0.0, STARTED + MOMENTS[number] - time.monotonic()))
        body = LOAD["bodies"][number % len(LOAD["bodies"])]
        headers = {"content-type": "application/json", "x-pmem-client": f"load-{number % 4}"}
        self.client.post("/chat/completions", data=body, headers=headers)
        raise StopUser


@events.request.add_listener
def _count(response: Any = None, response_time: float = 0.0, exception: Any = None, **_: Any) -> None:
    status = getattr(response, "status_code", 0)
    end = "accepted" if status == 200 and exception is None else "refused" if status in (429, 503) else "lost"
    ENDS[end].append(round(response_time, 2))


@events.quit.add_listener
def _write(**_: Any) -> None:
    Path(LOAD["out"]).write_text(json.dumps(ENDS), encoding="utf-8")
