"""What can this route do, how fast, and do its limits hold? Asked of any OpenAI-compatible server, answered for people.

Run:  python -m serve.probe http://127.0.0.1:8077/v1
      python -m serve.probe http://gpu-box:8077/v1 --api-key-file key --json

One memory step on the golden snapshot (list, decision, reminder) is timed request by request; then more requests than the stated
limit are sent at once and what happens to them is counted. Nothing is sent but the golden snapshot.
"""

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pmem.backend import Completion, Request, RouteError
from pmem.envelope import EMPTY_LIST, OPERATIONS_CLOSE, SPEAK, SPEAK_CLOSE, Malformed, citations, parse_envelope
from pmem.errors import UserError, exit_code
from pmem.grammar import list_grammar, reminder_grammar
from pmem.prompt import golden_snapshot, render_messages
from pmem.route import CLIENT_HEADER, HttpBackend
from serve.capacity_settings import read_key
from serve.facts import decision_config

MORE_THAN_LIMIT = 4
LOAD_TOKENS = 48
CLIENT = "pmem-probe"
TIMEOUT_S = 120.0


@dataclass(slots=True)
class Finding:
    """One line of the report. `ok` None: a fact without a verdict."""

    name: str
    text: str
    ok: bool | None = None
    figures: dict[str, Any] = field(default_factory=dict)


class Probe:
    """The findings on one route, in order."""

    def __init__(self, backend: HttpBackend, headers: dict[str, str]) -> None:
        self.backend, self.headers = backend, headers
        self.findings: list[Finding] = []
        self.limit: int | None = None
        self._step = f"probe-{secrets.token_hex(4)}"

    def run(self, *, load: bool) -> list[Finding]:
        """Everything that can be asked. A route that cannot be used ends the list with its reason."""
        facts = self.backend.probe(deadline=time.monotonic() + TIMEOUT_S)
        if facts.problem:
            self._add("route", facts.problem, ok=False)
            return self.findings
        self.limit = facts.limit
        self._add("route", f"{facts.kind}, model {self.backend.model}", ok=True, kind=facts.kind)
        self._add("limit", str(facts.limit or "states none"), limit=facts.limit)
        stated = (
            f"model {facts.model_hash[:16]}, prompt {facts.prompt_version}" if facts.model_hash else "states none: unverified"
        )
        self._add("identity", stated, model_hash=facts.model_hash, prompt_version=facts.prompt_version)
        for lack in self.backend.lacks:
            self._add("lacks", lack)
        for ask in (self._list, self._decision, self._reminder):
            self._guarded(ask)
        if load and self.limit:
            self._load(self.limit)
        return self.findings

    def _list(self) -> None:
        bank = golden_snapshot().bank
        answer = self._complete("", (OPERATIONS_CLOSE,), list_grammar(bank))
        broken = isinstance(parse_envelope(answer.text, finish_reason=answer.finish_reason), Malformed)
        self._speed("list", answer, "malformed" if broken else "well-formed", ok=not broken)

    def _decision(self) -> None:
        if not self.backend.can_score:
            return
        read = self.backend.decide([self._request(EMPTY_LIST + "\n")], deadline=_soon())[0]
        text = f"p(speak) {read.prob_speak:.3f}, label mass {read.label_mass:.3f}, {read.latency_ms:.0f} ms"
        self._add("decision", text, ok=read.label_mass >= 0.95, **asdict(read))

    def _reminder(self) -> None:
        if not self.backend.can_score:
            return
        bank = golden_snapshot().bank
        answer = self._complete(EMPTY_LIST + "\n" + SPEAK, (SPEAK_CLOSE,), reminder_grammar(bank))
        unknown = set(citations(answer.text)) - {entry.id for entry in bank.entries}
        cited = f"cites {', '.join(citations(answer.text)) or 'nothing'}"
        self._speed("reminder", answer, cited, ok=not unknown)

    def _load(self, limit: int) -> None:
        """More requests at once than the route says it takes."""
        self._guarded(lambda: self.backend.end_step(self._step))
        with ThreadPoolExecutor(limit + MORE_THAN_LIMIT) as pool:
            answers = list(pool.map(lambda _: self._one_of_many(), range(limit + MORE_THAN_LIMIT)))
        statuses = Counter(status for status, _ in answers)
        refused = [seconds for status, seconds in answers if status in (429, 503)]
        text = ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(statuses.items()))
        slowest = f"; slowest refusal {max(refused) * 1000:.0f} ms" if refused else ""
        self._add("load", f"{limit + MORE_THAN_LIMIT} at once: {text}{slowest}", ok=statuses[200] <= limit and bool(refused))

    def _one_of_many(self) -> tuple[int, float]:
        body = {"model": self.backend.model, "messages": [{"role": "user", "content": "Count."}], "max_tokens": LOAD_TOKENS}
        started = time.perf_counter()
        try:
            answer = httpx.post(self.backend.url + "/chat/completions", json=body, headers=self.headers, timeout=TIMEOUT_S)
        except httpx.HTTPError:
            return 0, time.perf_counter() - started
        return answer.status_code, time.perf_counter() - started

    def _complete(self, prefix: str, stop: tuple[str, ...], grammar: str) -> Completion:
        request = self._request(prefix, max_tokens=96, stop=stop, grammar=grammar if self.backend.dialect.grammar_key else None)
        return self.backend.complete([request], deadline=_soon())[0]

    def _request(self, prefix: str, **changes: Any) -> Request:
        return Request(messages=render_messages(golden_snapshot()), prefix=prefix, step_id=self._step, **changes)

    def _speed(self, name: str, answer: Completion, verdict: str, *, ok: bool) -> None:
        rate = answer.tokens_out / max(answer.latency_ms, 1e-3) * 1000
        text = f"{verdict}, {answer.tokens_in} + {answer.tokens_out} tokens, {answer.latency_ms:.0f} ms, {rate:.0f} tokens/s"
        cached = f", {answer.cached_tokens} from the prefix cache" if answer.cached_tokens else ""
        counts = ("tokens_in", "tokens_out", "cached_tokens", "latency_ms", "finish_reason")
        self._add(name, text + cached, ok=ok, **{key: getattr(answer, key) for key in counts})

    def _guarded(self, ask: Any) -> None:
        try:
            ask()
        except (RouteError, TimeoutError) as error:
            self._add(ask.__name__.strip("_<>"), str(error) or "no answer in time", ok=False)

    def _add(self, name: str, text: str, ok: bool | None = None, **figures: Any) -> None:
        self.findings.append(Finding(name, text, ok, figures))


def _soon() -> float:
    return time.monotonic() + TIMEOUT_S


def _model_name(url: str, headers: dict[str, str]) -> str:
    try:
        answer = httpx.get(url.rstrip("/") + "/models", headers=headers, timeout=10)
        return str(answer.json()["data"][0]["id"])
    except httpx.HTTPError as error:
        raise UserError(f"{url} does not answer ({type(error).__name__}); start the server, or check the address") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise UserError(f"{url} lists no model; name one with --model, and the key with --api-key-file") from None


def main(argv: list[str] | None = None) -> int:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="base address, /v1 included")
    parser.add_argument("--model", help="name of the model (default: the first that the server lists)")
    parser.add_argument("--api-key-file", type=Path, help="file whose first line is the key")
    parser.add_argument("--model-folder", type=Path, help="folder of the served model, for the exact decision tokens")
    parser.add_argument("--no-load", action="store_true", help="do not send more requests than the limit")
    parser.add_argument("--json", action="store_true", help="one JSON line a finding")
    options = parser.parse_args(argv)
    key = read_key(options.api_key_file) if options.api_key_file else None
    headers = {CLIENT_HEADER: CLIENT, **({"authorization": f"Bearer {key}"} if key else {})}
    model = options.model or _model_name(options.url, headers)
    decision = decision_config(options.model_folder) if options.model_folder else {}
    findings = Probe(HttpBackend(options.url, model, api_key=key, client=CLIENT, **decision), headers).run(
        load=not options.no_load
    )
    for finding in findings:
        mark = {True: "ok  ", False: "BAD ", None: "    "}[finding.ok]
        print(json.dumps(asdict(finding)) if options.json else f"{mark}{finding.name:10} {finding.text}")
    return 1 if any(finding.ok is False for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
