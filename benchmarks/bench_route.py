"""What the capacity limit costs and keeps: load, tokens a second, cost of a step, and a chat beside memory, against bare vLLM.

Run:  python benchmarks/bench_route.py --model .cache/base/smollm2-135m-instruct --out benchmarks/route.json
      python benchmarks/bench_route.py --model FOLDER --seconds 10 --limit 2 --only load --locust /path/to/locust

Two servers are started one after the other on loopback with the same engine flags: ours (middleware, limit N) and bare (vLLM's
own defaults for queueing). The engine's threads keep to core 0, the load to core 1. About 10 minutes. The load is Locust's
(`pip install locust`, also in an environment of its own): 1, 4 and 16 times the measured capacity, open loop.
"""

import argparse
import asyncio
import dataclasses
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from pmem.backend import Request
from pmem.envelope import EMPTY_LIST, OPERATIONS_CLOSE, SPEAK, SPEAK_CLOSE, Operation, render_operations
from pmem.prompt import golden_snapshot, render_messages
from pmem.route import HttpBackend
from pmem.snapshot import Snapshot
from serve.command import Command, names_of, server_command
from serve.route import Launcher, _with_port
from serve.route_config import RouteConfig
from serve.vllm_build import find_build, known_flags

OURS_ONLY = (
    "--middleware",
    "--max-num-queued-reqs",
    "--max-num-queued-tokens",
    "--scheduling-policy",
    "--max-num-seqs",
    "--block-size",
)
SAVING = render_operations([Operation(op="save_knowledge", content="The report is JSON, not CSV; the user asked for it later.")])
SPOKEN_GRAMMAR = 'root ::= "The report is JSON, not CSV; it was asked for later [tm-k-1]" "</context_for_action>"'
ANSWER_TOKENS = 32
"""About a reminder."""
WAIT_S = 120.0
LOAD_FILE = Path(__file__).with_name("route_load.py")


@dataclass(slots=True)
class Tally:
    """What became of the requests of one run."""

    accepted_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    num_lost: int = 0

    def figures(self) -> dict[str, Any]:
        return {
            "accepted": len(self.accepted_s), "refused": len(self.refused_s), "lost": self.num_lost,
            "accepted_p50_ms": quantile(self.accepted_s, 0.5), "accepted_p95_ms": quantile(self.accepted_s, 0.95),
            "refused_p50_ms": quantile(self.refused_s, 0.5), "refused_p95_ms": quantile(self.refused_s, 0.95),
        }  # fmt: skip


def quantile(seconds: list[float], q: float) -> float | None:
    """A quantile in milliseconds, None without values."""
    if not seconds:
        return None
    return round(sorted(seconds)[min(len(seconds) - 1, int(q * len(seconds)))] * 1000, 1)


@contextmanager
def served(model: Path, limit: int, *, bare: bool, log: Path) -> Iterator[Launcher]:
    """A ready server; `bare` leaves out everything of ours."""
    threads = "0" if (os.cpu_count() or 1) > 1 else "auto"
    config = _with_port(
        RouteConfig(model=model, port=0, limit=limit, client_share=1.0, log_file=log, restart_limit=0, cpu_threads=threads)
    )
    build, names = find_build(), names_of(config)
    command = server_command(config, build, names, known_flags(build))
    launcher = Launcher(config, build, names, without_ours(command) if bare else command)
    thread = threading.Thread(target=launcher.run)
    thread.start()
    try:
        while not launcher.ready.wait(0.5):
            if not thread.is_alive():
                raise SystemExit(f"the server did not start; see {log}")
        yield launcher
    finally:
        launcher.stopping.set()
        thread.join()


def without_ours(command: Command) -> Command:
    """The same command without our flags (each of them takes one value)."""
    kept, skip = [], False
    for argument in command.arguments:
        if not skip and argument not in OURS_ONLY:
            kept.append(argument)
        skip = not skip and argument in OURS_ONLY
    return dataclasses.replace(command, arguments=tuple(kept))


def chat_body(model: str, index: int, max_tokens: int = ANSWER_TOKENS) -> dict[str, Any]:
    """One request like a memory request: the prompt of a snapshot, an answer of fixed length."""
    messages = list(render_messages(snapshot(index)))
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0.0}


def snapshot(index: int) -> Snapshot:
    return golden_snapshot().model_copy(update={"task_messages": (f"Build report {index}.", "Make it JSON, not CSV.")})


async def ask(client: httpx.AsyncClient, body: dict[str, Any], tally: Tally, name: str = "bench") -> None:
    started = time.perf_counter()
    try:
        answer = await client.post("/chat/completions", json=body, headers={"x-pmem-client": name})
    except httpx.HTTPError:
        tally.num_lost += 1
        return
    seconds = time.perf_counter() - started
    if answer.status_code == 200:
        tally.accepted_s.append(seconds)
    elif answer.status_code in (429, 503):
        tally.refused_s.append(seconds)
    else:
        tally.num_lost += 1


async def closed_loop(url: str, model: str, workers: int, seconds: float) -> tuple[Tally, float]:
    """`workers` that ask again as soon as they are answered; returns the tally and answers a second."""
    tally, end = Tally(), time.monotonic() + seconds
    async with _client(url) as client:

        async def work(worker: int) -> None:
            index = worker
            while time.monotonic() < end:
                await ask(client, chat_body(model, index), tally)
                index += workers

        started = time.monotonic()
        await asyncio.gather(*(work(worker) for worker in range(workers)))
    return tally, len(tally.accepted_s) / (time.monotonic() - started)


def offered(url: str, model: str, rate: float, seconds: float, locust: str) -> dict[str, Any]:
    """Requests at `rate` a second for `seconds` from Locust on a core of its own, then all of them awaited."""
    count = max(1, math.ceil(rate * seconds))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "load.json"
        bodies = [json.dumps(chat_body(model, index)) for index in range(min(count, 64))]
        value = json.dumps({"rate": rate, "count": count, "bodies": bodies, "out": str(out)})
        command = [locust, "-f", str(LOAD_FILE), "--headless", "--only-summary", "-H", url, "-u", str(count), "-r", str(count)]
        command += ["-t", f"{math.ceil(1.5 * seconds) + 4}s", "--stop-timeout", str(int(WAIT_S)), "--loglevel", "ERROR"]
        pinned = ["taskset", "-c", "1", *command] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else command
        subprocess.run(pinned, env={**os.environ, "LOAD": value}, stdout=subprocess.DEVNULL, check=False)
        ends = json.loads(out.read_text(encoding="utf-8"))
    accepted, refused = ([ms / 1000 for ms in ends[name]] for name in ("accepted", "refused"))
    lost = count - len(accepted) - len(refused)
    return {"offered": count, "per_s": round(rate, 2), **Tally(accepted, refused, lost).figures()}


def _client(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    return httpx.AsyncClient(base_url=url, timeout=WAIT_S, limits=limits, trust_env=False)


def load(launcher: Launcher, seconds: float, locust: str) -> dict[str, Any]:
    """Capacity, then 1, 4 and 16 times as much offered."""
    url, model, limit = launcher._target.url, launcher._target.model, launcher.config.limit
    asyncio.run(closed_loop(url, model, limit, 3.0))
    _, capacity = asyncio.run(closed_loop(url, model, limit, seconds))
    runs = {}
    for times in (1, 4, 16):
        runs[f"{times}x"] = offered(url, model, times * capacity, seconds, locust)
        _wait_idle(url)
    return {"capacity_per_s": round(capacity, 2), **runs, **_peak(url)}


def tokens(launcher: Launcher, count: int) -> dict[str, Any]:
    """Tokens written a second by `limit` workers over the same prompts, below the limit (nothing is refused)."""
    url, model = launcher._target.url, launcher._target.model
    rates = []
    for _ in range(3):

        async def run() -> float:
            async with _client(url) as client:
                places, tally, started = iter(range(count)), Tally(), time.monotonic()

                async def work() -> None:
                    for index in places:
                        await ask(client, chat_body(model, index, 32), tally)

                await asyncio.gather(*(work() for _ in range(launcher.config.limit)))
                assert len(tally.accepted_s) == count, tally.figures()
                return count * 32 / (time.monotonic() - started)

        rates.append(asyncio.run(run()))
    return {"tokens_per_s": round(statistics.median(rates), 1), "runs": [round(rate, 1) for rate in rates]}


def step_cost(launcher: Launcher, count: int) -> dict[str, Any]:
    """Milliseconds of the three requests of a step with an empty list, and of the first two with one save; one step at a time."""
    target = launcher._target
    backend = HttpBackend(target.url, target.model, kind="vllm", **target.decision)
    before = _metrics(target.url)
    steps = [_timed_step(backend, 1000 + index, EMPTY_LIST) for index in range(count)]
    after = _metrics(target.url)
    saving = [_timed_step(backend, 3000 + index, SAVING) for index in range(count)]
    saved = {name: statistics.median(step[name] for step in saving) for name in ("list", "decision")}
    hits, queries = (after[name] - before[name] for name in ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"))
    medians = {name: round(statistics.median(step[name] for step in steps) * 1000, 1) for name in steps[0]}
    silent = medians["list"] + medians["decision"]
    return {
        **medians,
        "decision_over_list": round(medians["decision"] / medians["list"], 3),
        "list_with_a_save": round(saved["list"] * 1000, 1),
        "decision_over_list_with_a_save": round(saved["decision"] / saved["list"], 3),
        "silent_over_speaking": round(silent / (silent + medians["reminder"]), 3),
        "prefix_hit_rate": round(hits / queries, 3) if queries else None,
    }


def _timed_step(backend: HttpBackend, index: int, list_text: str) -> dict[str, float]:
    """Seconds of list, decision and reminder; grammars of one text each fix what is written."""
    fixed = {"messages": render_messages(snapshot(index)), "step_id": f"cost-{index}"}
    only = f"root ::= {json.dumps(list_text)}"
    times = [time.perf_counter()]
    backend.complete([Request(**fixed, max_tokens=96, stop=(OPERATIONS_CLOSE,), grammar=only)])
    times.append(time.perf_counter())
    backend.decide([Request(**fixed, prefix=f"{list_text}\n")])
    times.append(time.perf_counter())
    spoken = f"{list_text}\n{SPEAK}"
    backend.complete([Request(**fixed, prefix=spoken, max_tokens=48, stop=(SPEAK_CLOSE,), grammar=SPOKEN_GRAMMAR)])
    times.append(time.perf_counter())
    return dict(zip(("list", "decision", "reminder"), (late - early for early, late in itertools.pairwise(times))))


async def first_token_s(client: httpx.AsyncClient, model: str, index: int) -> float:
    """Time to the first token of a streamed chat."""
    body = chat_body(model, index, 32) | {"stream": True}
    started = time.perf_counter()
    async with client.stream("POST", "/chat/completions", json=body, headers={"x-pmem-client": "chat"}) as answer:
        answer.raise_for_status()
        times = [time.perf_counter() - started async for line in answer.aiter_lines() if line.startswith("data:")]
    return times[0]


def chat(launcher: Launcher, count: int) -> dict[str, Any]:
    """A chat's time to first token with memory off, and with one memory step in ten of its turns beside it."""
    target = launcher._target
    backend = HttpBackend(target.url, target.model, kind="vllm", **target.decision)

    async def run(memory: bool, offset: int) -> list[float]:
        times = []
        async with _client(target.url) as client:
            for index in range(count):
                step = None
                if memory and index % 10 == 0:
                    messages = render_messages(snapshot(offset + index))
                    step = asyncio.create_task(asyncio.to_thread(_step, backend, messages, f"chat-{offset}-{index}"))
                times.append(await first_token_s(client, target.model, offset + index))
                if step:
                    await step
        return times

    asyncio.run(run(False, 10_000))
    off, on = asyncio.run(run(False, 20_000)), asyncio.run(run(True, 30_000))
    figures = {f"{name}_{q}": quantile(values, p) for name, values in (("off", off), ("on", on)) for q, p in QUANTILES}
    return {**figures, "median_ratio": round(statistics.median(on) / statistics.median(off), 3)}


QUANTILES = (("p50_ms", 0.5), ("p95_ms", 0.95))


def _step(backend: HttpBackend, messages: tuple[dict[str, str], ...], step: str) -> None:
    backend.complete([Request(messages=messages, max_tokens=24, stop=(OPERATIONS_CLOSE,), step_id=step)])
    backend.decide([Request(messages=messages, prefix=f"{EMPTY_LIST}\n", step_id=step)])
    backend.end_step(step)


def _wait_idle(url: str) -> None:
    end = time.monotonic() + WAIT_S
    while _metrics(url)["vllm:num_requests_running"] and time.monotonic() < end:
        time.sleep(0.2)


def _peak(url: str) -> dict[str, Any]:
    peak = _metrics(url).get("pmem_route_inflight_peak")
    return {} if peak is None else {"peak_in_flight": int(peak)}


def _metrics(url: str) -> dict[str, float]:
    """Prometheus values by name, labels added up."""
    found: dict[str, float] = {}
    for line in httpx.get(url.removesuffix("/v1") + "/metrics/", timeout=30, trust_env=False).text.splitlines():
        if line and not line.startswith("#"):
            name = line.split("{")[0].split(" ")[0]
            found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    return found


def main() -> None:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0], epilog="\n".join(lines[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path(".cache/base/smollm2-135m-instruct"))
    parser.add_argument("--limit", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each load run")
    parser.add_argument("--count", type=int, default=40, help="requests of the other measurements")
    parser.add_argument("--only", choices=("load", "tokens", "step", "chat"), action="append")
    parser.add_argument("--locust", default="locust", help="the load generator's command")
    parser.add_argument("--ours-only", action="store_true", help="leave bare vLLM out")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/route.json"))
    options = parser.parse_args()
    wanted = options.only or ["load", "tokens", "step", "chat"]
    report: dict[str, Any] = {"limit": options.limit, "seconds": options.seconds, "count": options.count}
    for name, bare in (("ours", False), ("bare", True))[: 1 if options.ours_only else 2]:
        log = options.out.with_suffix(f".{name}.log")
        with served(options.model, options.limit, bare=bare, log=log) as launcher:
            measures = {
                "load": lambda of=launcher: load(of, options.seconds, options.locust),
                "tokens": lambda of=launcher: tokens(of, options.count),
                "step": lambda of=launcher: step_cost(of, options.count),
                "chat": lambda of=launcher: chat(of, options.count),
            }
            report[name] = {}
            for key in wanted:
                report[name][key] = measures[key]()
                print(json.dumps({name: {key: report[name][key]}}), file=sys.stderr, flush=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
