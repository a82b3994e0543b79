"""Scores, thresholds, matched trials and the verdict: may this policy speak?"""

import sys

if sys.argv[:1] == ["-m"]:  # `python -m` is about to run a command of this package: importing torch takes seconds
    from pmem.errors import stop_quietly

    stop_quietly()
