"""The environment of most families: commands run in a sandbox's bash; the check looks at the files that came out."""

import json
from collections.abc import Mapping
from typing import Any

from data.envs.base import CheckResult, Refused, Task, Tool, ToolResult
from data.envs.filestate import DIRECTORY, FILE, FileEntry, FileState, file_entry, file_state, folders_of, read_state, write_state
from data.envs.finished import Finished
from data.sandbox import Sandbox
from pmem.canonical import canonical_json

DATABASE = "db.json"
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
        if self._task and tool in self._task.tools:
            return self._call(self._task.tools[tool], args)
        if tool != "bash" or set(args) != {"cmd"}:
            return ToolResult(f"unknown tool {tool} {sorted(args)}", True)
        ran = self.sandbox.run(str(args["cmd"]))
        text = ran.text if len(ran.text) <= MAX_RESULT_CHARS else ran.text[:MAX_RESULT_CHARS] + "\n…"
        return ToolResult(text.rstrip("\n"), ran.code != 0)

    def _call(self, tool: Tool, args: Mapping[str, Any]) -> ToolResult:
        path = self.sandbox.root / DATABASE
        database = json.loads(path.read_text(encoding="utf-8"))
        try:
            result = ToolResult(tool(database, args), False)
        except (Refused, KeyError) as error:
            result = ToolResult(f"Error: {error.args[0]}", True)
        path.write_text(canonical_json(database), encoding="utf-8")
        return result

    def snapshot(self) -> FileState:
        """Read the folder."""
        return read_state(self.sandbox.root, self._task.volatile if self._task else ())

    def restore(self, state: FileState, *, present: FileState | None = None) -> None:
        """Make the folder equal `state`. `present` is what stands there now, read from the folder when None."""
        write_state(self.sandbox.root, state, present or read_state(self.sandbox.root))

    def check(self, state: FileState | None = None) -> CheckResult:
        """Look at the files as they are (`state`, when the caller has just read or laid them)."""
        assert self._task is not None, "check before reset"
        finished = Finished(state or self.snapshot(), self.sandbox)
        failed = tuple(probe.name for probe in self._task.probes if probe.found(finished) != probe.expected)
        return CheckResult(not failed, 1.0 - len(failed) / len(self._task.probes), failed)

    def close(self) -> None:
        self.sandbox.close()


def initial_files(task: Task) -> FileState:
    """The files a task starts with, before its set-up."""
    entries: dict[str, FileEntry] = {}
    for path, text in task.files.items():
        for folder in folders_of(path):
            entries[folder] = file_entry(folder, DIRECTORY, False, b"")
        entries[path] = file_entry(path, FILE, path in task.executable, text.encode())
    return file_state(entries)
