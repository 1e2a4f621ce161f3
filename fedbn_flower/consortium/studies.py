"""Studies: files of a run's keys, known by a digest of what they and the code say."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .. import packages
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from .agreement import toml_of

HERE = frozenset(
    {"run-dir", "title", "resume", "verbose", "track", "backend", "workers", "fast", "checkpoint-every"}
)
"""Keys that change nothing of what a site is asked, computes or tells."""
OWN_CODE = re.compile(r"([^:,+]+\.py):\w+|([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)+:[A-Za-z_]")
"""Code that a value names: ``FILE.py:NAME``, ``package.module:NAME``."""
LINE = re.compile(r"([0-9a-f]{64})(?: .*)?")


def study_keys(file: Path) -> dict[str, Any]:
    """Return the keys of a study's file.

    Raises
    ------
    UserError
        When it cannot be read, or a value is a list or a table: a study is one run.
    """
    keys = toml_of(file)
    for key, value in keys.items():
        if not isinstance(value, bool | int | float | str):
            raise not_allowed(key, value, f"one value in {file.name}: a study is one run")
    return keys


def study_digest(file: Path) -> str:
    """Return the digest of a study's file with the code of this project."""
    return run_digest(study_keys(file))


def run_digest(run_config: Mapping[str, Any]) -> str:
    """Return the digest of a run's configuration with the code of this project: 64 hexadecimal digits.

    Keys at their defaults, and those that change nothing at a site, are left out.
    """
    keys = _plain(run_config)
    said = {"keys": keys, "code": code_digest(), "own": _own_code(keys)}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    from ..config.keys import RUN_KEYS  # a second, which most commands of a consortium do not need
    from ..config.named_algorithms import NOT_GIVEN

    found = {}
    for key, value in values.items():
        default = RUN_KEYS[key].default if key in RUN_KEYS else NOT_GIVEN
        said = float(value) if type(default) is float and type(value) is int else value
        if key not in HERE and said not in ("", default):
            found[key] = said
    return found


@cache
def code_digest() -> str:
    """Return the SHA-256 of this project's code, as it is imported here."""
    digest = hashlib.sha256()
    places = {name: folders[0] for name, folders in packages.PLACES.items()} | {"fedbn_flower": packages.HERE}
    for name, folder in sorted(places.items()):
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder)
            if name == "fedbn_flower" and inside.parts[0] in packages.PLACES:
                continue  # a wheel has a second copy
            digest.update(f"{name}/{inside.as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _own_code(values: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of each file or package of code that a value names, found here, in the app or installed."""
    found = {}
    for text in filter(lambda value: isinstance(value, str), values.values()):
        for file, package in OWN_CODE.findall(text):
            name = file or package
            places = [Path(place, name) for place in (".", str(packages.HERE.parent), *sys.path)]
            if not (place := next((place for place in places if place.exists()), None)):
                raise UserError(f"study: there is no {name!r}, which {text!r} names; install the app first")
            files = [place] if file else sorted(place.rglob("*.py"))
            digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files))
            found[place.name] = digest.hexdigest()
    return found


def admitted_studies(file: Path) -> dict[str, str]:
    """Return the studies that a site has admitted, what they are called by their digest: a line each.

    Raises
    ------
    UserError
        When the file cannot be read, or has something else.
    """
    with os_errors_as_user_errors("studies", f"read {str(file)!r}"):
        lines = file.read_text(errors="replace").splitlines()
    for line in lines:
        if not LINE.fullmatch(line):
            raise not_allowed("studies", line, f"a digest and a name a line in {str(file)!r}")
    return {line[:64]: line[65:] for line in lines}
