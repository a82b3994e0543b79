"""One JSON line a request on standard error: ids, kinds, times and outcome, never content.

vLLM sets up its own logger only, so a line of ours would go nowhere; this one brings its handler along.
"""

import logging
import sys
from typing import Any

from pmem.canonical import canonical_json

LOG = logging.getLogger("pmem.serve")


def open_log() -> None:
    """Let lines through to standard error, once, unless somebody has set the logger up already."""
    if not LOG.handlers and LOG.level == logging.NOTSET:
        LOG.setLevel(logging.INFO)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter('{"at":"%(asctime)s","log":"pmem.serve",%(message)s}'))
        LOG.addHandler(handler)


def log_request(**facts: Any) -> None:
    """One line; the values are ids, names and numbers."""
    LOG.info("%s", canonical_json(facts)[1:-1])
