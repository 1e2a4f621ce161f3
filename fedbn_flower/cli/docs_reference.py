"""Make docs/reference.md and pyproject.toml's run-config keys from the declarations in the code."""

import json
import re
from collections.abc import Iterable

from ..config.help import Flag, common_flags, first_line, flags_of, inherited_flags
from ..config.keys import FORMER_KEYS, OWN_KEYS
from ..config.registry import APP
from ..config.selection import NOT_GIVEN, REGISTRIES, built_in_settings

PYPROJECT, REFERENCE = APP / "pyproject.toml", APP / "docs" / "reference.md"

INTRODUCTION = """\
# Every key

Made from the declarations in the code by `python -m fedbn_flower.reference`. A key is a flag of the
command line (`--rounds 20`) and a key of Flower's run configuration
(`flwr run . --run-config "rounds=20"`). A setting belongs to the algorithms in whose table it stands, and
is refused where the run has none of them; `auto` is as if it were not given. Flower refuses keys that
pyproject.toml does not list: settings of algorithms of your own go into `settings` there
(`settings='scale=0.5 decay=0.9'`).
"""


def run_config() -> dict[str, object]:
    """Every key that Flower is to let through, with its default."""
    settings = dict.fromkeys([*built_in_settings(), *FORMER_KEYS], NOT_GIVEN)
    return {key: field.default for key, field in OWN_KEYS.items()} | settings


def pyproject(text: str) -> str:
    """The text of pyproject.toml with the run configuration's keys as they are."""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in run_config().items())
    block = re.compile(r"(?<=^\[tool\.flwr\.app\.config\]\n).*?(?=^\[|\Z)", re.DOTALL | re.MULTILINE)
    return block.sub(lambda _: f"{lines}\n", text)


def reference() -> str:
    """The text of docs/reference.md."""
    parts = [INTRODUCTION]
    parts += [_section(title, flags) for title, flags in common_flags().items()]
    parts += [_section(title, flags) for title, flags in inherited_flags().items()]
    for registry in REGISTRIES:
        for name, cls in registry.names.items():
            heading = f"{registry.key} `{name}`"
            parts.append(_section(heading[0].upper() + heading[1:], flags_of(cls), first_line(cls)))
    return "\n".join(parts)


def _section(title: str, flags: Iterable[Flag], words: str = "") -> str:
    rows = [[f"`{f.key}`", f"`{f.default}`" if f.default else "", f.allowed, f.meaning] for f in flags]
    header = [["flag", "default", "allowed", "meaning"], ["---"] * 4] if rows else []
    lines = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in [*header, *rows]]
    paragraphs = [f"## {title}", words.replace("``", "`"), "\n".join(lines)]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def write() -> None:
    """Write both files."""
    PYPROJECT.write_text(pyproject(PYPROJECT.read_text()))
    REFERENCE.write_text(reference())
