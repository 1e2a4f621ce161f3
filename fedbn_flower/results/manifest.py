"""Build and read a run's manifest, ``config.json``."""

import hashlib
import json
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..config.gone import in_new_keys
from ..config.run_config import RunConfig
from ..config.trust import code_in, names_of
from ..core.errors import UserError
from ..core.version import __version__
from ..federation.federation import Federation
from ..names import code_file

CONFIG = "config.json"
"""The file that describes a run, in the run's folder."""
EXPERIMENT = "experiment.json"
"""The file that describes a sweep, in the sweep's folder."""
PACKAGES = ("flwr", "flwr-datasets", "ray", "torch", "torchvision", "numpy")
LEARNT, WARNINGS, UNUSED = "learnt", "warnings", "unused"
"""What the run learns, as `Note`, and what it was warned of, as they were shown before the first round;
and the keys that nothing reads."""
NOT_KEYS = (
    *("shape", "data", "date", "client-names", "class-names", "events", "versions", "weights", "code"),
    *(LEARNT, WARNINGS, UNUSED),
)
"""Entries of ``config.json`` that are not keys of a run."""


def build_manifest(federation: Federation) -> dict[str, object]:
    """Return the configuration with all settings of its algorithms, the input spec, the data and versions."""
    weights, dataset = federation.inputs.initial().weights, federation.dataset
    return {
        **federation.config.to_user_config(),
        "eval-data": federation.inputs.tested_on.eval_data,
        "resume": "",
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
    try:
        return in_new_keys(json.loads((folder / CONFIG).read_text()))
    except FileNotFoundError:
        raise UserError(f"{key}: {str(folder)!r} is not the folder of a run: it has no {CONFIG}") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{key}: {str(folder)!r} is not the folder of a run ({error})") from error


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return all keys and settings of a run from its folder.

    Raises
    ------
    UserError
        When the folder is not a run's.
    """
    return {key: value for key, value in read_manifest(folder, "resume").items() if key not in NOT_KEYS}
