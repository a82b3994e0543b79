"""The probe tells what a route does and whether its limit holds, on real loopback servers."""

import asyncio
import json
from typing import Any

import pytest

from pmem.errors import exit_code
from serve.capacity import CapacityLimit
from serve.capacity_settings import CapacitySettings
from serve.probe import main
from serve.slots import SlotLimits
from tests.serve.engine_app import WithApp, serving
from tests.serve.test_steps_under_limit import ModelApp


class SlowApp(ModelApp):
    """Takes its time over what is not a memory request."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            message = await receive()
            if b"Count." in message["body"]:
                await asyncio.sleep(0.4)

            async def again() -> dict[str, Any]:
                return dict(message)

            receive = again
        await super().__call__(scope, receive, send)


def findings(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> tuple[int, dict[str, Any]]:
    code = main([url + "/v1", "--json", *options])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {line["name"]: line for line in lines}


def test_a_limited_route_holds(capsys: pytest.CaptureFixture[str]) -> None:
    settings = CapacitySettings(slots=SlotLimits(limit=2), model_hash="m" * 64, prompt_version="p")
    limit = CapacityLimit(engine := SlowApp(), settings)
    with serving(WithApp(limit, engine)) as url:
        code, found = findings(capsys, url)
    assert code == 0, found
    assert found["limit"]["figures"] == {"limit": 2} and found["identity"]["figures"]["model_hash"] == "m" * 64
    assert found["list"]["ok"] and found["decision"]["ok"] and found["reminder"]["text"].startswith("cites tm-k-1")
    assert "2 x 200, 4 x 429" in found["load"]["text"] and found["load"]["ok"]
    assert "text" not in found["list"]["figures"], "no text of the model in the report"


def test_a_route_without_limit_states_none(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(SlowApp()) as url:
        code, found = findings(capsys, url, "--no-load")
    assert code == 0 and found["limit"]["text"] == "states none"
    assert "load" not in found


def test_a_limit_that_does_not_hold_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    class Boasting(SlowApp):
        async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"] == "/capacity":
                from tests.serve.engine_app import answer

                await answer(send, {"limit": 2, "in_flight": 0, "refused_total": 0, "model_hash": None, "prompt_version": None})
            else:
                await super().__call__(scope, receive, send)

    with serving(Boasting()) as url:
        code, found = findings(capsys, url)
    assert code == 1 and found["load"]["ok"] is False and "6 x 200" in found["load"]["text"]


def test_nobody_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: main(["http://127.0.0.1:9/v1"])) == 2
    assert "does not answer" in capsys.readouterr().err
