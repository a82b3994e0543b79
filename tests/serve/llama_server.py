"""llama.cpp's own HTTP server in a process of its own: `python tests/serve/llama_server.py MODEL.gguf PORT`."""

import sys
import time

import xllamacpp

SLOTS, CONTEXT_PER_SLOT = 2, 2048


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path, params.port = sys.argv[1], int(sys.argv[2])
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * CONTEXT_PER_SLOT
    params.endpoint_props, params.use_jinja, params.warmup = True, True, False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
