"""Serve a trained model on a dedicated route: vLLM (GPU or CPU build) with a hard capacity limit, loopback by default.

Run:  python -m serve.route configs/route.yaml model=runs/quickstart/grpo
      python -m serve.route configs/route.yaml --dry-run                       prints the command and ends
      python -m serve.route configs/route.yaml -- python -m eval.score …       serves while that command runs, then stops

Ready means that a real decision was answered; then the settings for the runtime and one JSON line of facts are printed. A crash
is restarted with back-off up to a limit; a server that was never ready is not, its last lines are shown instead (exit 2). SIGINT
and SIGTERM stop the server and every process it started.
"""

import dataclasses
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from pmem.atomic import write_text
from pmem.config import load_config, stage_parser
from pmem.errors import UserError, exit_code
from pmem.policy_file import plan_notes_of
from pmem.prompt import PROMPT_VERSION
from serve.capacity_settings import read_key
from serve.command import Command, Names, names_of, server_command
from serve.facts import Facts, base_url, decision_config, engine_name, trained_window
from serve.model_folder import check_model_folder
from serve.readiness import NotReady, Target, wait_until_ready
from serve.route_config import RouteConfig
from serve.server_process import ServerProcess
from serve.vllm_build import RANGE, Build, find_build, known_flags

DEFAULT = Path("configs/route.yaml")
HEALTHY_S = 600.0
MAX_BACKOFF_S = 30.0
NUM_LAST_LINES = 12
POLL_S = 0.2


class Launcher:
    """Keeps one route up until told to stop."""

    def __init__(self, config: RouteConfig, build: Build, names: Names, command: Command) -> None:
        self.config, self.build, self.names, self.command = config, build, names, command
        self.stopping = threading.Event()
        self.ready = threading.Event()
        self.was_ready = False
        key = read_key(config.api_key_file) if config.api_key_file else None
        self._target = Target(base_url(config), names.model[0], decision_config(config.model), key)

    def run(self) -> int:
        """Start, watch, restart after crashes; returns 0 after a stop, 1 when it gave up, 2 when it was never ready."""
        num_crashes = 0
        while not self.stopping.is_set():
            started = time.monotonic()
            reason = self._serve_once()
            if not self.was_ready:
                _say("stopped before the route was ready" if self.stopping.is_set() else self._start_failed(reason))
                return 2
            if self.stopping.is_set():
                break
            num_crashes = 1 if time.monotonic() - started > HEALTHY_S else num_crashes + 1
            if num_crashes > self.config.restart_limit:
                _say(f"gave up after {self.config.restart_limit} restarts: {reason}")
                return 1
            wait_s = min(MAX_BACKOFF_S, self.config.restart_backoff_s * 2 ** (num_crashes - 1))
            _say(f"{reason}; restart {num_crashes} of {self.config.restart_limit} in {wait_s:g} s")
            self.stopping.wait(wait_s)
        return 0

    def _start_failed(self, reason: str) -> str:
        """Why the first start failed, with the server's last lines where they are not on the screen already."""
        if self.config.log_file is None:
            return f"{reason}; its own output above says why"
        lines = self.config.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-NUM_LAST_LINES:]
        return "\n".join([f"{reason}; the last lines of {self.config.log_file}:", *("    " + line[:300] for line in lines)])

    def _serve_once(self) -> str:
        """One life of the server; returns why it ended."""
        started = time.monotonic()
        process = ServerProcess(self.command.arguments, self.command.environment, self.config.log_file)
        try:
            read = wait_until_ready(
                self._target,
                ended=lambda: process.exit_status is not None or self.stopping.is_set(),
                timeout_s=self.config.ready_timeout_s,
            )
            self._announce(read.prob_speak, time.monotonic() - started, process.pid)
            while process.exit_status is None and not self.stopping.wait(POLL_S):
                pass
            return f"the server ended with status {process.exit_status}"
        except NotReady as error:
            return str(error)
        finally:
            self.ready.clear()
            process.stop(self.config.stop_timeout_s)
            if self.config.facts_file:
                self.config.facts_file.unlink(missing_ok=True)

    def _announce(self, prob_speak: float, ready_s: float, pid: int) -> None:
        config, names = self.config, self.names
        facts = Facts(
            url=self._target.url, model=names.model[0], names=names.model, adapters=tuple(name for name, _ in names.adapters),
            model_hash=names.model_hash, prompt_version=PROMPT_VERSION, limit=config.limit, max_model_len=config.max_model_len,
            engine=engine_name(self.build), decision=self._target.decision, prob_speak_probe=round(prob_speak, 6),
            ready_s=round(ready_s, 1), pid=pid,
            api_key_file=str(config.api_key_file.resolve()) if config.api_key_file else None,
            trajectory_steps=trained_window(config.model), plan_notes=plan_notes_of(config.model),
        )  # fmt: skip
        if not self.ready.is_set():
            print(f"# settings for the runtime\n{facts.settings_yaml()}{facts.line()}", flush=True)
        if config.facts_file:
            write_text(config.facts_file, facts.line() + "\n")
        self.was_ready = True
        self.ready.set()


def main(argv: list[str] | None = None) -> int:
    arguments, beside = _split(sys.argv[1:] if argv is None else argv)
    parser = stage_parser(__doc__, DEFAULT)
    parser.add_argument("--dry-run", action="store_true", help="print the command and the environment it adds, start nothing")
    parsed = parser.parse_intermixed_args(arguments)
    path, overrides = parsed.config, list(parsed.overrides)
    if "=" in str(path) and not path.exists():
        path, overrides = DEFAULT, [str(path), *overrides]
    config = load_config(RouteConfig, path, overrides)
    check_model_folder(config.model)
    names = names_of(config)
    if not parsed.dry_run:
        config = _with_port(config)
    build = find_build()
    if not build.is_supported and not config.any_version:
        raise UserError(
            f"vLLM {build.version} is outside the tested range {RANGE}; install one of these, or set any_version=true"
        )
    command = server_command(config, build, names, known_flags(build))
    if parsed.dry_run:
        _print_command(command)
        return 0
    for notice in command.notices:
        _say(notice)
    return _launch(Launcher(config, build, names, command), beside)


def _launch(launcher: Launcher, beside: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: launcher.stopping.set())
    if not beside:
        return launcher.run()
    answer: list[int] = []
    worker = threading.Thread(target=_run_beside, args=(launcher, beside, answer))
    worker.start()
    try:
        given_up = launcher.run()
    finally:
        launcher.stopping.set()
        worker.join()
    return answer[0] if answer else given_up or 1


def _run_beside(launcher: Launcher, beside: list[str], answer: list[int]) -> None:
    """Run a command while the route answers, then stop the route; a stop of the route ends the command."""
    while not launcher.ready.wait(POLL_S):
        if launcher.stopping.is_set():
            return
    try:
        process = subprocess.Popen(beside)
    except OSError as error:
        _say(f"{beside[0]} cannot be run ({error.strerror}); name the command after --")
        answer.append(2)
        launcher.stopping.set()
        return
    while process.poll() is None:
        if launcher.stopping.wait(POLL_S):
            process.terminate()
            process.wait()
    answer.append(process.returncode)
    launcher.stopping.set()


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in argv:
        return argv, []
    place = argv.index("--")
    return argv[:place], argv[place + 1 :]


def _with_port(config: RouteConfig) -> RouteConfig:
    """The configuration with a port that is free now. Raises UserError when the wanted one is in use."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            place = f"{config.host}:{config.port}"
            raise UserError(
                f"{place} cannot be bound ({error.strerror}); stop what uses it, or set port=0 for a free one"
            ) from None
        return dataclasses.replace(config, port=probe.getsockname()[1])


def _print_command(command: Command) -> None:
    for notice in command.notices:
        _say(notice)
    for name, value in sorted(command.environment.items()):
        print(f"export {name}={shlex.quote(value)}")
    print(shlex.join(command.arguments))


def _say(sentence: str) -> None:
    print(f"serve.route: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))
