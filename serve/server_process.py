"""One server process and all its children: started in a group of its own, watched, and stopped with nothing left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
STDERR = 2
POLL_S = 0.05


class ServerProcess:
    """A started server. When the launcher dies by force, the kernel tells the server to stop (Linux)."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log_file: Path | None = None) -> None:
        if log_file:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log: IO[bytes] | None = log_file.open("ab") if log_file else None
        self._process = subprocess.Popen(
            arguments,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log or STDERR,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_stop_with_parent if sys.platform == "linux" else None,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit status once it has ended, else None."""
        return self._process.poll()

    def stop(self, timeout_s: float) -> None:
        """Ask it to stop; after `timeout_s`, or when it has ended, kill what is left of its group."""
        if self.exit_status is None:
            self._process.send_signal(signal.SIGTERM)
            _wait(lambda: self.exit_status is not None, timeout_s)
        _kill_group(self.pid)
        self._process.wait()
        if self._log:
            self._log.close()


def group_members(pgid: int) -> list[int]:
    """Living processes of a group (zombies do not count); empty where /proc does not tell."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == pgid and fields[0] not in "ZX":
            members.append(int(entry.parent.name))
    return members


def _kill_group(pgid: int) -> None:
    """Kill every process of the group and wait until they are gone."""
    try:
        os.killpg(pgid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    _wait(lambda: not group_members(pgid), 5.0)


def _wait(done: Callable[[], bool], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not done() and time.monotonic() < end:
        time.sleep(POLL_S)


def _stop_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
