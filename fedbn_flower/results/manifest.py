"""Build and read a run's manifest, ``config.json``."""

import hashlib
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ..config.gone import in_new_keys
from ..config.keys import RUN_KEYS
from ..config.run_config import RunConfig
from ..config.trust import code_in, names_of
from ..core.errors import UserError
from ..core.stored import CONFIG, KIND, RUN, checked_kind, json_object
from ..core.version import __version__
from ..names import code_file
from ..server.federation import Federation

PACKAGES = ("flwr", "flwr-datasets", "ray", "torch", "torchvision", "numpy")
LEARNT, WARNINGS, UNUSED = "learnt", "warnings", "unused"
"""What the run learns, as `Note`, and what it was warned of, as they were shown before the first round;
and the keys that nothing reads."""
NOT_KEYS = (
    *(KIND, "shape", "data", "date", "client-names", "class-names", "events", "versions", "weights", "code"),
    *(LEARNT, WARNINGS, UNUSED),
)
"""Entries of ``config.json`` that are not keys of a run."""
Plain = str | bool | float | None
KINDS: dict[object, object] = {int: float, float: float, bool: bool}
"""What the value of a key with a declared type is, whatever version wrote it; whole numbers are floats."""


class _Manifest(BaseModel):
    """What each entry of ``config.json`` may be; only what a person's program would stumble over."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Plain]


_FIELDS: dict[str, Any] = {
    **{key: (KINDS.get(field.annotation, Plain), None) for key, field in RUN_KEYS.items()},
    **dict.fromkeys(NOT_KEYS, (Any, None)),
    **dict.fromkeys(("versions", "code"), (dict[str, str] | None, None)),
    **dict.fromkeys(("client-names", "class-names", "events", WARNINGS, UNUSED), (list[str] | None, None)),
    LEARNT: (list[dict[str, str]], []),
    "weights": (dict[str, Plain | list[str]] | None, None),
}
MANIFEST = create_model("MANIFEST", __base__=_Manifest, **_FIELDS)


def build_manifest(federation: Federation) -> dict[str, object]:
    """Return the configuration with all settings of its algorithms, the input spec, the data and versions."""
    weights, dataset = federation.inputs.initial().weights, federation.dataset
    return {
        **federation.config.to_user_config(),
        "eval-data": federation.inputs.tested_on.eval_data,
        "resume": "",
        KIND: RUN,
        "shape": federation.inputs.model_spec.as_dataset(),
        "data": dataset.digest,
        "date": datetime.now(UTC).date().isoformat(),
        "client-names": federation.inputs.client_names,
        **({"class-names": dataset.output_names} if dataset.class_names else {}),
        **({"events": [event.name for event in dataset.events]} if dataset.events else {}),
        **({"weights": weights.as_record()} if weights else {}),
        **({"code": code} if (code := code_digests(federation.config)) else {}),
        LEARNT: [note._asdict() for note in federation.learnt],
        WARNINGS: federation.warnings,
        UNUSED: federation.unused,
        "versions": {"fedbn-flower": __version__, "python": platform.python_version(), **_versions()},
    }


def of_resumed(manifest: dict[str, object], folder: Path) -> dict[str, object]:
    """Return the manifest of a run that goes on: its date, if it has one, is that of its beginning."""
    earlier = read_manifest(folder, "resume")
    dated = {"date": earlier["date"]} if "date" in earlier else {}
    return {**{key: value for key, value in manifest.items() if key != "date"}, **dated}


def code_digests(config: RunConfig) -> dict[str, str]:
    """Return the SHA-256 of each file of a user's code that a key names, by its path there."""
    named = {code for key, value in names_of(config.to_user_config()) for code in code_in(key, value)}
    found = {place: code_file(place) for place in sorted(named) if place.endswith(".py")}
    return {place: hashlib.sha256(path.read_bytes()).hexdigest() for place, path in found.items() if path}


@cache
def _versions() -> dict[str, str]:
    """Return the versions of packages, which are read from files."""
    return {name: version(name) for name in PACKAGES}


def read_manifest(folder: Path, key: str) -> dict[str, Any]:
    """Return the content of a run's ``config.json``, in the keys that there are.

    Raises
    ------
    UserError
        When the folder is not a run's; the message begins with the key.
    """
    checked_kind(folder, key, RUN)
    found = json_object(folder / CONFIG)
    try:
        MANIFEST.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(
            f"{key}: {str(folder / CONFIG)!r} cannot be read ({first['loc'][0]}: {first['msg']})"
        ) from None
    return in_new_keys(found)


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return all keys and settings of a run from its folder.

    Raises
    ------
    UserError
        When the folder is not a run's.
    """
    return {key: value for key, value in read_manifest(folder, "resume").items() if key not in NOT_KEYS}
