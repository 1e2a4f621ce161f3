"""A run's ``config.json``: written, and read again."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.version import __version__
from ..federation.federation import Federation

CONFIG = "config.json"
"""The file in the folder of a run that says what it is."""
EXPERIMENT = "experiment.json"
"""The file in the folder of a sweep that says what it is."""
PACKAGES = ("flwr", "flwr-datasets", "ray", "torch", "torchvision", "numpy")
NOT_KEYS = ("shape", "data", "client-names", "versions")
"""What else ``config.json`` tells."""


def described(federation: Federation) -> dict[str, object]:
    """The configuration with every setting of its algorithms, what inputs look like, and what it ran on."""
    versions = {name: version(name) for name in PACKAGES}
    return {
        **federation.config.to_user_config(),
        "eval-data": "local" if federation.inputs.evaluates_locally else "global",
        "resume": "",
        "shape": federation.dataset.spec.as_dataset(),
        "data": federation.dataset.digest,
        "client-names": federation.inputs.client_names,
        "versions": {"fedbn-flower": __version__, "python": platform.python_version(), **versions},
    }


def stored_facts(folder: Path, key: str) -> dict[str, Any]:
    """All that ``config.json`` tells of the run that left this folder.

    Raises
    ------
    UserError
        When it is not such a folder; it begins with the key.
    """
    try:
        return dict(json.loads((folder / CONFIG).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{key}: {str(folder)!r} is not the folder of a run ({error})") from error


def stored_configuration(folder: Path) -> dict[str, Any]:
    """All keys and settings of the run that left this folder.

    Raises
    ------
    UserError
        When it is not such a folder.
    """
    return {key: value for key, value in stored_facts(folder, "resume").items() if key not in NOT_KEYS}
