"""A server process for launcher tests: health, models and one decision, with the faults that are asked for.

Run:  python tests/serve/fake_server.py PORT TOKEN_ID [crash_after_s=…] [mute=1] [deaf=1] [child=1] [silent=1] [broken=…]
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT, TOKEN_ID = int(sys.argv[1]), sys.argv[2]
FAULTS = dict(argument.split("=") for argument in sys.argv[3:])


class Handler(BaseHTTPRequestHandler):
    """One answer a path."""

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "fake", "owned_by": "vllm"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if FAULTS.get("mute"):
            self._answer({"error": "no"}, 500)
            return
        token = {"token": f"token_id:{TOKEN_ID}", "logprob": -0.5, "top_logprobs": []}
        choice = {"message": {"content": "c"}, "finish_reason": "length", "logprobs": {"content": [token]}}
        self._answer({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})

    def _answer(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    if FAULTS.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if FAULTS.get("child"):
        subprocess.Popen([sys.executable, "-c", "import time, signal; signal.signal(15, 1); time.sleep(600)"])
    if "broken" in FAULTS:
        print(*(f"line {number}" for number in range(30)), FAULTS["broken"], sep="\n", flush=True)
        sys.exit(1)
    if "crash_after_s" in FAULTS:
        threading.Timer(float(FAULTS["crash_after_s"]), lambda: os._exit(3)).start()
    if FAULTS.get("silent"):
        time.sleep(600)
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()


if __name__ == "__main__":
    main()
