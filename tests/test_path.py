"""The whole path through `make`, small: a tiny random model, a few dozen tasks, every stage real; killed and run again."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pmem.canonical import file_sha256
from tests.tiny import tiny_model

ROOT = Path(__file__).parents[1]
DATA = ("rollouts.jsonl", "imported.jsonl", "snapshots.parquet", "labels.parquet", "sft.parquet", "decisions/rules.parquet")
SMALL: dict[str, dict[str, Any]] = {
    "simulate": {"num_tasks": 110, "num_heldout": 8, "min_acts": 8, "max_acts": 12},
    "label": {"num_branches": 4, "per_episode": {"train": 2, "dev": 1, "fit": 2, "certify": 1, "test": 3, "heldout": 2}},
    "build": {"max_prompt_chars": 6000, "max_train_rows": 60},
    "sft": {
        "max_steps": 80,
        "learning_rate": 1e-2,
        "train_embeddings": True,
        "rows_per_batch": 8,
        "batches_per_step": 1,
        "eval_every": 40,
        "save_every": 50,
        "dev_rows": 8,
        "select_by": "loss",
        "pair_weight": 0.0,
        "decision_weight": 1.0,
        "max_tokens": 8192,
    },
    "pivots": {"min_pivots": 2, "mean_ceiling": 1.0, "max_share_silent": 0.9, "min_share_silent": 0.0},
    "grpo": {
        "max_steps": 2,
        "prompts_per_step": 2,
        "num_generations": 2,
        "batches_per_step": 1,
        "lora_layers": 2,
        "save_every": 1,
        "dev_rows": 4,
        "max_completion_tokens": 120,
    },
    "score": {
        "limits": {},
        "lists": False,
        "list_max_tokens": 96,
        "reminder_max_tokens": 96,
    },
    "ab": {"num_tasks": 4, "other_tasks": 2, "num_acts": 6},
}
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Small configurations, a tiny model, a person's own rollouts, and one run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("path")
    configs = folder / "configs"
    configs.mkdir()
    for path in (ROOT / "configs").glob("*.yaml"):
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        (configs / path.name).write_text(yaml.safe_dump({**values, **SMALL.get(path.stem, {})}), encoding="utf-8")
    own = folder / "own.jsonl"
    own.write_text("".join(json.dumps(chat(number)) + "\n" for number in range(3)), encoding="utf-8")
    variables = {"CONFIGS": configs, "MODEL": tiny_model(folder, hidden=64), "ROLLOUTS": own, "PYTHON": shutil.which("python3")}
    made = {"folder": folder, "variables": variables}
    done = run_make(made, "whole")
    assert done.returncode == 0, done.stderr[-3000:]
    return {**made, "output": done.stdout}


def chat(number: int) -> dict[str, Any]:
    """One rollout as OpenAI chat messages."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": f"make job{number}"})},
    }
    return {
        "messages": [
            {"role": "user", "content": f"Run job{number} and keep the log in out/{number}.log."},
            {"role": "assistant", "content": "I run the job.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "make: *** No rule to make target. Stop."},
            {"role": "assistant", "content": "There is no such target."},
        ]
    }


def command(world: dict[str, Any], name: str) -> list[str]:
    variables = [f"{key}={value}" for key, value in world["variables"].items()]
    return ["make", "quickstart", f"RUN={world['folder'] / name}", *variables]


def run_make(world: dict[str, Any], name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(world, name), cwd=ROOT, capture_output=True, text=True, timeout=900, env=environment())


def environment() -> dict[str, str]:
    """Without what a make that started the tests hands down: its variables would become those of the run."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "SERVE")
    }


def test_the_path_ends_with_a_verdict_and_a_report(world: dict[str, Any]) -> None:
    run = world["folder"] / "whole"
    verdict = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["promoted"] is False, "a random model must not be promoted"
    assert {"never", "rules", "prompted", "sft", "sft_grpo", "random", "oracle"} <= set(verdict["arms"])
    assert (run / "report.html").stat().st_size > 10_000
    assert "report.html" in world["output"] and "verdict.json" in world["output"]


def test_nothing_is_made_twice(world: dict[str, Any]) -> None:
    run = world["folder"] / "whole"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != ".variables"}
    assert run_make(world, "whole").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_killed_in_every_stage_the_run_ends_with_the_same_data(world: dict[str, Any]) -> None:
    """SIGKILL at random moments until the run gets through; files of data stages are the same bytes, the report is there."""
    generator, run, kills = random.Random(7), world["folder"] / "killed", 0
    while True:
        process = subprocess.Popen(
            command(world, "killed"),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )
        patience = generator.uniform(4, 14) + 4 * kills
        try:
            _, errors = process.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            time.sleep(0.2)
        assert kills < 60
    assert process.returncode == 0, errors.decode()[-3000:]
    assert kills >= 3
    for name in DATA:
        assert file_sha256(run / name) == file_sha256(world["folder"] / "whole" / name), name
    assert (run / "verdict.json").exists() and (run / "report.html").exists()
