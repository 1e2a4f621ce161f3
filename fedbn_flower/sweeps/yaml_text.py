"""Read YAML as its version 1.2 means it, in which ``off`` is a word and ``1e-3`` a number."""

import re
from collections.abc import Hashable
from typing import Any, ClassVar

import yaml

PLAIN = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (
        r"[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)",
        list("-+.0123456789"),
    ),
}
"""Plain words that are no text, with their first letters (YAML 1.2.2, section 10.3.2)."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values alone, and each key once.

    PyYAML reads version 1.1: ``off`` is false there, ``2024-01-01`` a date, ``12:30`` the number 750.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        keys = [self.construct_object(key) for key, _ in node.value]
        if twice := [key for key in found if keys.count(key) > 1]:
            raise ValueError(f"{twice[0]!r} is given twice")
        return found


for kind, (words, letters) in PLAIN.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{words})$"), letters)


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML document.

    Raises
    ------
    ValueError
        For other text, a tag other than those of plain values, or a key that is given twice.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
