"""YAML in which a key that stands twice is an error: PyYAML's own loader lets the last one win without a word."""

from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"


class _UniqueKeys(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: key {key.value!r} stands twice; keep one")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError, also for a key that stands twice."""
    return yaml.load(text, _UniqueKeys)
