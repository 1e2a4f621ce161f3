"""What a run's ``config.json`` tells."""

import json
from pathlib import Path
from typing import Any

from ..errors import UserError

CONFIG = "config.json"
"""The file in the folder of a run that says what it is."""
EXPERIMENT = "experiment.json"
"""The file in the folder of a sweep that says what it is."""
NOT_KEYS = ("shape", "data", "client-names", "versions")
"""What else ``config.json`` tells."""


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
