"""Run the real launcher, signals included, over the fake server.

Run:  python tests/serve/launch_fake.py MODEL FACTS [fault=…] [-- command]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serve.route import _launch, _split
from tests.serve.test_route import launcher

if __name__ == "__main__":
    arguments, beside = _split(sys.argv[1:])
    model, facts, *faults = arguments
    sys.exit(_launch(launcher(Path(model), faults, facts_file=Path(facts)), beside))
