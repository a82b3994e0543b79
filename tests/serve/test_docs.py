"""What docs/ ships for operating a route fits the code: metric names of the dashboard, configuration of the compose file."""

import json
import re
from pathlib import Path

from prometheus_client import REGISTRY

from pmem.config import load_config
from serve import metrics
from serve.route_config import RouteConfig

DOCS = Path(__file__).parents[2] / "docs"


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = (DOCS / "grafana.json").read_text()
    assert json.loads(dashboard)["panels"]
    assert metrics.LIMIT is not None
    known = {sample.name for family in REGISTRY.collect() for sample in family.samples} | {
        f"{family.name}{end}" for family in REGISTRY.collect() for end in ("", "_total", "_bucket", "_sum", "_count")
    }
    asked = set(re.findall(r"pmem_route_\w+", dashboard))
    assert asked and asked <= known, asked - known


def test_the_compose_configuration_loads_and_asks_for_a_key() -> None:
    config = load_config(RouteConfig, DOCS / "compose" / "route.yaml", [])
    assert not config.is_loopback and config.api_key_file is not None


def test_the_unit_starts_the_launcher() -> None:
    unit = (DOCS / "systemd" / "pmem-route.service").read_text()
    assert "-m serve.route" in unit and "KillMode=mixed" in unit
