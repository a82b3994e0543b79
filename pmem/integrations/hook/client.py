"""What an agent runs for each hook event: hand the event to the daemon, print its answer, always exit 0.

`pmem hook install` copies this file into the data folder, beside a script of four lines that holds the configuration:

    python -I -S <data>/hook/pmem_hook.py claude

Nothing is imported but builtin modules: `socket` or `json` alone would cost more than the whole call. Whatever happens (no
daemon, a hung one, bad input, a closed pipe), it ends within the deadline with code 0 and prints one JSON object or nothing.

config: `state` folder of the sockets · `settings` file · `python`, `root` interpreter and folder of pmem for the daemon ·
`deadline_ms` · `idle_s` · `live`.
"""

import _signal
import _socket
import posix
import time

POLL_S = 0.005
START_PAUSE_S = 10
"""A daemon that cannot start is not started again at once."""
KEPT_VARIABLES = (b"HOME", b"PATH", b"LANG", b"LC_ALL", b"TMPDIR", b"USER", b"SSL_CERT_FILE", b"SSL_CERT_DIR", b"PYTHONHASHSEED")
KEPT_PREFIXES = (b"PMEM_", b"XDG_", b"OTEL_")
"""Of the agent's environment, which may hold its secrets, the daemon sees only these."""


def main(client: str, config: dict) -> None:
    """Serve one event for `client` (`claude` or `codex`) and end the process."""
    try:
        _signal.signal(_signal.SIGALRM, lambda *_: posix._exit(0))
        _signal.setitimer(_signal.ITIMER_REAL, config["deadline_ms"] / 1000)
        if not disabled(config):
            serve(client, config, read_all(0))
    except BaseException:
        pass
    posix._exit(0)


def serve(client: str, config: dict, event: bytes) -> None:
    """Ask the daemon, print what it says, and tell it that this was printed."""
    project = project_folder()
    connection = connect(config, project)
    if connection is None:
        return
    head = b'{"op":"hook","client":"%s","live":%s,"bytes":%d}\n'
    connection.sendall(head % (client.encode(), b"true" if config["live"] else b"false", len(event)) + event)
    answer = read_line(connection)
    if len(answer) > 1 and answer.endswith(b"\n"):
        write_all(1, answer)
        connection.sendall(b"\x06")


def connect(config: dict, project: bytes) -> "_socket.socket | None":
    """A connection to the daemon of this project, which is started when there is none."""
    posix.chdir(config["state"])  # a socket's path may hold 107 bytes, its name always fits
    name = socket_name(project)
    connection = try_connect(name)
    if connection is None:
        connection = start_and_connect(config, name)
    return connection


def try_connect(name: str) -> "_socket.socket | None":
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(name)
        return connection
    except OSError:
        connection.close()
        return None


def start_and_connect(config: dict, name: str) -> "_socket.socket | None":
    """One of the hooks that find no daemon makes the socket and starts one behind it; events wait in the socket meanwhile."""
    import fcntl

    lock = posix.open(name + ".lock", posix.O_CREAT | posix.O_RDWR | posix.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            time.sleep(POLL_S)
    connection = try_connect(name)
    if connection is None and may_start(lock):
        try:
            posix.unlink(name)
        except FileNotFoundError:
            pass
        posix.umask(0o077)
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        listener.bind(name)
        listener.listen(128)
        start(config, name, listener.fileno())
        listener.close()
        connection = try_connect(name)
    posix.close(lock)
    return connection


def may_start(lock: int) -> bool:
    """Whether the last start lies far enough back. The lock file holds its time."""
    last = posix.read(lock, 32)
    now = time.time()
    if last.strip().isdigit() and 0 <= now - int(last) < START_PAUSE_S:
        return False
    posix.lseek(lock, 0, 0)
    posix.write(lock, b"%-32d" % now)
    return True


def start(config: dict, name: str, listener: int) -> None:
    """Run the daemon detached from this process, with the listening socket and without the agent's pipes and secrets."""
    if posix.fork():
        return
    try:
        posix.setsid()
        if posix.fork():
            posix._exit(0)
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        null = posix.open("/dev/null", posix.O_RDWR)
        for stream in (0, 1, 2):
            posix.dup2(null, stream)
        posix.set_inheritable(listener, True)
        program = (
            "import sys; sys.path.append(sys.argv.pop(1)); from pmem.integrations.hook.daemon import main; main(sys.argv[1:])"
        )
        arguments = [config["python"], "-I", "-c", program, config["root"], str(listener), posix.getcwd() + "/" + name]
        arguments += [str(config["idle_s"]), config["settings"]]
        posix.execve(config["python"], arguments, kept_environment())
    finally:
        posix._exit(0)


def kept_environment() -> dict:
    return {k: v for k, v in posix.environ.items() if k in KEPT_VARIABLES or k.startswith(KEPT_PREFIXES)}


def project_folder() -> bytes:
    """The agent's project: what it says itself, else the nearest folder with a `.git`, else where it stands."""
    stated = posix.environ.get(b"CLAUDE_PROJECT_DIR")
    if stated:
        return stated
    here = folder = posix.getcwdb()
    while len(folder) > 1:
        try:
            posix.stat(folder + b"/.git")
            return folder
        except OSError:
            folder = folder[: folder.rindex(b"/")] or b"/"
    return here


def socket_name(project: bytes) -> str:
    """`live-<16 hex of the project folder>.sock` (FNV-1a)."""
    number = 0xCBF29CE484222325
    for byte in project.rstrip(b"/"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"live-{number:016x}.sock"


def disabled(config: dict) -> bool:
    """The kill switch, before anything is read or sent: `PMEM_ENABLED`, else the line `enabled: false` of the settings."""
    stated = posix.environ.get(b"PMEM_ENABLED")
    if stated is not None:
        return is_off(stated)
    try:
        handle = posix.open(posix.environ.get(b"PMEM_SETTINGS") or config["settings"], posix.O_RDONLY)
    except OSError:
        return False
    text = read_all(handle)
    posix.close(handle)
    lines = [line.partition(b"#")[0].partition(b":") for line in text.splitlines() if line.startswith(b"enabled")]
    return any(key.strip() == b"enabled" and is_off(value) for key, _, value in lines)


def is_off(text: bytes) -> bool:
    return text.strip().strip(b"\"'").lower() in (b"false", b"no", b"off", b"0")


def read_all(handle: int) -> bytes:
    parts = []
    while part := posix.read(handle, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def read_line(connection: "_socket.socket") -> bytes:
    answer = b""
    while not answer.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            break
        answer += part
    return answer


def write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[posix.write(handle, data) :]
