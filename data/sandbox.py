"""A temporary folder and one persistent bash confined to it: the place where simulated tasks really execute.

    with Sandbox() as box:
        box.run("echo hello > a.txt && cat a.txt")      # Ran(text="hello\\n", code=0, timed_out=False)

Where Linux namespaces may be made (root, or unprivileged user namespaces) the bash runs in its own pid, network, ipc and mount
namespace, chrooted to read-only system folders plus the task's folder, without capabilities: no network, no path out, and every
process ends with it. Elsewhere (`isolated` is False) the command text is checked for paths out of the folder and resource limits
hold, but the network is not cut; docs/environments.md says so. A small supervisor outlives a killed parent and removes the folder.
"""

import contextlib
import os
import re
import secrets
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType

MAX_OUTPUT_BYTES = 200_000
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")
DEFAULT_TIMEOUT_S = 20.0
_PREFIX = "pmem-box-"
_OUT_OF_FOLDER = re.compile(r"(?:^|[\s=<>\"'(/])\.\.(?:[/\s\"')]|$)|(?:^|[\s=<>\"'(:])(~|/(?!dev/null\b)[\w.-]+)")

# Environment of every command: nothing of the caller's, fixed dates so that git ids repeat, no fsync.
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@example.org",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@example.org",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    "GIT_CONFIG_COUNT": "5",
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "none",
    "GIT_CONFIG_KEY_1": "safe.directory",
    "GIT_CONFIG_VALUE_1": "*",
    "GIT_CONFIG_KEY_2": "gc.auto",
    "GIT_CONFIG_VALUE_2": "0",
    "GIT_CONFIG_KEY_3": "init.defaultBranch",
    "GIT_CONFIG_VALUE_3": "main",
    "GIT_CONFIG_KEY_4": "advice.detachedHead",
    "GIT_CONFIG_VALUE_4": "false",
}
_LIMITS = "ulimit -c 0 -f 65536 -n 256 -t 60 -v 4000000"
# Runs inside the new namespaces; $1 = folder that holds `root` (mount point) and `box`; the others are read-only folders.
_CONFINE = r"""
set -e
base=$1; shift; root=$base/root
mount --make-rprivate /
mount -t tmpfs -o size=64m,mode=755 none "$root"
for folder in "$@"; do
  mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; mount -o remount,ro,bind "$root$folder"
done
mkdir -p "$root/dev" "$root/tmp" "$root/box"
for device in null zero urandom; do : > "$root/dev/$device"; mount --bind /dev/$device "$root/dev/$device"; done
: > "$root/last_pid"; mount --bind /proc/sys/kernel/ns_last_pid "$root/last_pid"; mount -o remount,ro,bind "$root/last_pid"
mount --bind "$base/box" "$root/box"
mount -o remount,ro "$root"
exec chroot "$root" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all bash --noprofile --norc -c \
  'cd /box; HOME=/box; exec bash --noprofile --norc -s'
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command gave: standard output and error together, exit code (124 when it ran out of time)."""

    text: str
    code: int
    timed_out: bool = False


class Sandbox:
    """One bash for many commands. Each runs in a subshell in the folder's top, so that all state is in the files."""

    def __init__(self, *, scratch: Path | None = None, isolate: bool | None = None) -> None:
        self.isolated = can_isolate() if isolate is None else isolate
        self.base = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=scratch or default_scratch()))
        self.root = self.base / "box"
        self.num_commands = 0
        self._processes_before = 0
        self._last_pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def num_processes(self) -> int:
        """Real processes started so far (exact when isolated: the pid counter of the namespace; else the commands)."""
        return self._processes_before + self._last_pid if self.isolated else self.num_commands

    def run(self, command: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Ran:
        """Run one command line to its end."""
        refusal = None if self.isolated else refused_text(command)
        if refusal:
            return Ran(f"bash: {refusal}: Permission denied\n", 126)
        process = self._started()
        assert process.stdin is not None
        last = "$(</last_pid)" if self.isolated else "0"
        line = f"( eval {shlex.quote(command)} ) </dev/null 2>&1; printf '\\n{self._mark} %d %d\\n' $? {last}\n"
        process.stdin.write(line.encode())
        process.stdin.flush()
        self.num_commands += 1
        return self._read_answer(process, time.monotonic() + timeout_s)

    def close(self) -> None:
        """End the bash with everything it started and remove the folder. May be called twice."""
        self._stop()
        shutil.rmtree(self.base, ignore_errors=True)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self.root.mkdir(parents=True, exist_ok=True)
            (self.base / "root").mkdir(exist_ok=True)
            self._mark = f"\x1e{secrets.token_hex(8)}"
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.root,
                env={**_ENVIRONMENT, "HOME": str(self.root)},
                start_new_session=True,
            )
        return self._process

    def _command(self) -> list[str]:
        inner = f"{_LIMITS}; exec bash --noprofile --norc -s"
        words = ["bash", "--noprofile", "--norc", "-c", inner]
        if self.isolated:
            flags = ["--net", "--pid", "--mount", "--ipc", "--fork", "--kill-child"] + ([] if os.geteuid() == 0 else ["-r"])
            script = f"{_LIMITS}\n{_CONFINE}"
            words = ["unshare", *flags, "bash", "--noprofile", "--norc", "-c", script, "confine", str(self.base), *_visible()]
        supervised = f"{shlex.join(words)}; rm -rf {shlex.quote(str(self.base))}"
        return ["bash", "--noprofile", "--norc", "-c", supervised]

    def _read_answer(self, process: subprocess.Popen[bytes], deadline: float) -> Ran:
        assert process.stdout is not None
        handle, mark, data = process.stdout.fileno(), self._mark.encode(), bytearray()
        while True:
            ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(handle, 65536) if ready else b""
            data += piece
            at = data.rfind(mark)
            if at >= 0 and data.endswith(b"\n"):
                code, last_pid = data[at + len(mark) :].split()
                self._last_pid = int(last_pid)
                return Ran(data[: at - 1].decode("utf-8", "replace"), int(code))
            if not piece or len(data) > MAX_OUTPUT_BYTES:
                self._stop(keep_folder=True)
                reason = "timed out" if not ready else "output too long" if piece else "shell ended"
                return Ran(data[:MAX_OUTPUT_BYTES].decode("utf-8", "replace") + f"\nbash: {reason}\n", 124, not ready)

    def _stop(self, *, keep_folder: bool = False) -> None:
        process, self._process = self._process, None
        self._processes_before, self._last_pid = self._processes_before + self._last_pid, 0
        if process is None:
            return
        if keep_folder:  # the supervisor would remove the folder: end it first, then the session
            process.kill()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.0 if keep_folder else 2.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
        process.wait()


def refused_text(command: str) -> str | None:
    """The first path in `command` that leaves the folder, or None. Used where the kernel does not confine the bash.

    `..`, `~` and absolute paths whose first folder exists on this machine are refused; `/void/` in an awk program is not a path.
    """
    for match in _OUT_OF_FOLDER.finditer(command):
        path = match.group(1)
        if path is None:
            return ".."
        if path == "~" or (Path(path).exists() and path not in ("/usr", "/bin", "/dev")):
            return path
    return None


@cache
def can_isolate() -> bool:
    """Whether this process may make the namespaces; tried once by starting one."""
    if not sys.platform.startswith("linux") or not shutil.which("unshare") or not shutil.which("setpriv"):
        return False
    box = Sandbox(isolate=True)
    try:
        return box.run("echo ready", timeout_s=10.0).text == "ready\n"
    except OSError:
        return False
    finally:
        box.close()


@cache
def default_scratch() -> str:
    """Memory-backed when there is one, for speed; the usual temporary folder otherwise."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK | os.X_OK) else tempfile.gettempdir()


@cache
def _visible() -> tuple[str, ...]:
    folders = [folder for folder in SYSTEM_FOLDERS if Path(folder).is_dir()]
    return tuple(folders)
