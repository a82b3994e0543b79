"""Stop what a hook call has started, also when it is still starting."""

import os
import signal
import time
from pathlib import Path

from pmem.live import ask_at


def stop_daemons(state_dir: Path) -> None:
    """Ask every socket who serves it, end that process, and wait until its socket is gone."""
    until = time.monotonic() + 40
    while sockets := [place for place in state_dir.glob("live-*.sock") if not place.is_symlink()]:
        assert time.monotonic() < until, f"{sockets} were never answered"
        for place in sockets:
            status = ask_at(place, {"op": "status"})
            if status is None and not _listens(place):
                place.unlink(missing_ok=True)
            elif status is not None and status.get("pid") not in (None, os.getpid()):
                os.kill(status["pid"], signal.SIGTERM)
            elif status is not None:
                place.unlink(missing_ok=True)
        time.sleep(0.05)


def _listens(place: Path) -> bool:
    """Whether a process holds the socket, answering or not."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(place))
        except OSError:
            return False
    return True
