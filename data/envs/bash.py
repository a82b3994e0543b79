"""The environment of most families: commands run in a sandbox's bash, the check runs probes there too."""

from collections.abc import Mapping
from typing import Any

from data.envs.base import CheckResult, Environment, Task, ToolResult
from data.envs.filestate import DIRECTORY, FILE, FileState, file_state, read_state, write_state
from data.sandbox import Sandbox

MAX_RESULT_CHARS = 1_500


class BashEnvironment:
    """One sandbox, many tasks after one another."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.sandbox.root.mkdir(exist_ok=True)
        self._task: Task | None = None

    def reset(self, task: Task) -> None:
        """Write the task's files and run its set-up."""
        self.enter(task)
        self.restore(initial_files(task))
        if task.setup:
            ran = self.sandbox.run(task.setup)
            assert ran.code == 0, f"set-up of {task.task_id} failed: {ran.text}"

    def enter(self, task: Task) -> None:
        """Take the task for the steps and checks that follow; its files are laid by `restore`."""
        self._task = task

    def step(self, tool: str, args: Mapping[str, Any]) -> ToolResult:
        """Run one tool call; `bash` takes `cmd`. An unknown tool is an error result, not a fault."""
        if tool != "bash" or set(args) != {"cmd"}:
            return ToolResult(f"unknown tool {tool} {sorted(args)}", True)
        ran = self.sandbox.run(str(args["cmd"]))
        text = ran.text if len(ran.text) <= MAX_RESULT_CHARS else ran.text[:MAX_RESULT_CHARS] + "\n…"
        return ToolResult(text.rstrip("\n"), ran.code != 0)

    def snapshot(self) -> FileState:
        """Read the folder."""
        return read_state(self.sandbox.root, self._task.volatile if self._task else ())

    def restore(self, state: FileState) -> None:
        """Make the folder equal `state`, whatever stands there."""
        write_state(self.sandbox.root, state, read_state(self.sandbox.root))

    def check(self) -> CheckResult:
        """Run every probe on the files as they are."""
        assert self._task is not None, "check before reset"
        return run_probes(self.sandbox, self._task)

    def close(self) -> None:
        self.sandbox.close()


def initial_files(task: Task) -> FileState:
    """The files a task starts with, before its set-up."""
    entries: dict[str, tuple[str, bool, bytes]] = {}
    for path, text in task.files.items():
        for depth in range(1, len(parts := path.split("/"))):
            entries["/".join(parts[:depth])] = (DIRECTORY, False, b"")
        entries[path] = (FILE, path in task.executable, text.encode())
    return file_state(entries)


def run_probes(sandbox: Sandbox, task: Task) -> CheckResult:
    """All probes in one command line, outputs told apart by a separator no file holds."""
    command = "\n".join(f"printf '%s\\x1f' \"$({probe.command})\"" for probe in task.probes)
    found = sandbox.run(f"exec 2>&1\n{command}").text.split("\x1f")
    failed = tuple(probe.command for probe, text in zip(task.probes, found) if text.strip() != probe.expected)
    failed += tuple(probe.command for probe in task.probes[len(found):])
    return CheckResult(not failed, 1.0 - len(failed) / len(task.probes), failed)


def _is_environment(environment: BashEnvironment) -> Environment:
    """Checked by the type checker only."""
    return environment
