"""vLLM's own decisions as a judge: what is asked, what is read, and an error where a server has none."""

import json
from pathlib import Path
from typing import Any

import pytest

from eval.backends import open_backend
from pmem.backend import Request, RouteError
from pmem.prompt import golden_snapshot, render_messages
from serve.zero_shot import ZeroShotBackend, decisions_body, read_predicate
from tests.serve.engine_app import EngineApp, answer, serving
from tests.tiny import tiny_model

ANSWER = {"model": "m", "answers": [{"type": "predicate", "name": "remind", "probability": 0.25}], "usage": {"input_tokens": 9}}


class JudgeApp(EngineApp):
    """Answers `/v1/decisions` like vLLM 0.33; `known` False: an architecture it does not know."""

    def __init__(self, *, known: bool = True) -> None:
        super().__init__()
        self.known = known

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        elif scope["method"] == "GET":
            await answer(send, {"data": [{"id": "tiny", "owned_by": "vllm"}]})
        else:
            assert scope["path"] == "/v1/decisions"
            self.bodies.append(json.loads((await receive())["body"]))
            await answer(send, ANSWER, 200 if self.known else 501)


def request() -> Request:
    return Request(messages=render_messages(golden_snapshot()), prefix="<operations>[]</operations>\n", step_id="s")


def test_the_endpoint_is_asked_about_what_the_prompt_shows(tmp_path: Path) -> None:
    with serving(judge := JudgeApp()) as url:
        backend = open_backend(tiny_model(tmp_path), url + "/v1/decisions")
        assert isinstance(backend, ZeroShotBackend) and backend.route.endswith("/v1/decisions")
        (read,) = backend.decide([request()])
    assert (read.prob_speak, read.label_mass, read.tokens_in) == (0.25, 1.0, 9)
    (body,) = judge.bodies
    assert set(body) == {"model", "input", "questions"} and "# Task" in body["input"] and "<operations>" not in body["input"]


def test_an_architecture_without_decisions_is_a_route_error() -> None:
    with serving(JudgeApp(known=False)) as url, pytest.raises(RouteError, match="501"):
        ZeroShotBackend(url + "/v1/decisions", "tiny", kind="vllm").decide([request()])


@pytest.mark.parametrize(
    "broken", [{}, ANSWER | {"answers": []}, ANSWER | {"answers": [{"probability": 2}]}, ANSWER | {"usage": 1}]
)
def test_any_other_answer_is_a_route_error(broken: dict[str, Any]) -> None:
    with pytest.raises(RouteError, match="probability"):
        read_predicate(broken)


def test_the_question_names_the_model() -> None:
    assert decisions_body("m", request())["model"] == "m"
