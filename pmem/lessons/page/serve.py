"""Start the page: one address with a token is printed; whoever has it may decide. Loopback only.

pmem lessons serve [--port 0]
"""

import importlib.util
import secrets
import socket
import sys

from pmem.errors import UserError
from pmem.lessons.checkpoints import recover
from pmem.lessons.records import Actor
from pmem.lessons.store import open_store
from pmem.settings import Settings

NEEDED = ("starlette", "uvicorn", "jinja2")
HOST = "127.0.0.1"


def check_extra() -> None:
    """Raises UserError when the page's packages are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the page needs {', '.join(missing)}; install them with: pip install 'pmem[lessons]'")


def serve(settings: Settings, person: Actor, *, port: int = 0) -> int:
    """Serve until interrupted. Raises UserError for a missing extra, a port that is taken, a store that cannot be used."""
    check_extra()
    import uvicorn

    from pmem.lessons.page.app import make_app

    with open_store(settings) as store:
        recover(store)
        listener = _listen(port)
        taken = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        print(f"lessons page: http://{HOST}:{taken}/?token={token}", flush=True)
        print("stop it with Ctrl-C", file=sys.stderr, flush=True)
        config = uvicorn.Config(make_app(store, person, token=token, port=taken), log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise UserError(f"port {port} cannot be taken: {error.strerror}; leave --port out for a free one") from None
    return listener
