"""The runtime's own client against the capacity limit on a real server: steps, batches and samples all get their answers."""

import json
import math
from collections import Counter
from typing import Any

from pmem.policy import ModelPolicy
from pmem.route import HttpBackend
from pmem.snapshot import BankState, Entry, Snapshot
from serve.capacity import CapacityLimit
from serve.capacity_settings import CapacitySettings
from serve.slots import SlotLimits
from tests.pmem.fake_server import chat, token
from tests.serve.engine_app import EngineApp, WithApp, answer, serving


class ModelApp(EngineApp):
    """Answers lists, decisions and reminders as a model would; the probability of speaking is told in the task."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif scope["method"] == "GET":
            await answer(send, {"data": [{"id": "memory", "owned_by": "vllm"}]})
        else:
            body = json.loads((await receive())["body"])
            await answer(send, self._reply(body))

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("logprobs"):
            prob = 0.9 if "speak" in body["messages"][1]["content"] else 0.1
            return token({"context": math.log(prob), "no": math.log(1 - prob)})
        last = body["messages"][-1]["role"] == "assistant"
        return chat("Use JSON [tm-k-1]</context_for_action>" if last else "<operations>[]</operations>", "stop", None, "memory")


def snapshots(*tasks: str) -> list[Snapshot]:
    bank = BankState(entries=(Entry(id="tm-k-1", kind="knowledge", content="JSON.", created=1, touched=1),), next_number=2)
    return [Snapshot(task_messages=(task,), window=(), bank=bank) for task in tasks]


def test_batches_and_samples_keep_to_the_limit_and_lose_nothing() -> None:
    limit = CapacityLimit(engine := ModelApp(), CapacitySettings(slots=SlotLimits(limit=2), model_hash="m", prompt_version="p"))
    with serving(WithApp(limit, engine)) as url:
        backend = HttpBackend(url + "/v1", "memory", kind="vllm")
        facts = backend.probe()
        assert (facts.limit, facts.model_hash, backend.concurrency) == (2, "m", 2)
        policy = ModelPolicy(backend, timeout_ms=None)
        results = policy.step_many(snapshots(*["speak", "quiet", "quiet"] * 20))
        assert Counter(result.reason for result in results) == {"intervened": 20, "model_silent": 40}
        samples = policy.sample_many(snapshots(*["speak"] * 4), num_samples=6)
        assert {result.reason for row in samples for result in row} <= {"intervened", "model_silent"}
        assert limit.slots.peak <= 2 and limit.slots.in_flight == 0
        assert limit.refused_total < 20, "places are given back at once, so hardly any step has to wait"
