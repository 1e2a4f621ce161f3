"""Going on with a run that was stopped."""

import json
import shlex
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flwr.app import UserConfigValue

from ..config import RunConfig
from ..errors import UserError, not_allowed
from ..own import is_own
from ..rounds import Federation
from .checkpoint import Checkpoint, CheckpointFolder
from .run_folder import described

NOT_KEYS = ("shape", "data", "client-names", "versions")
"""What else ``config.json`` tells."""

EXPERIMENT = "experiment.json"
"""The file in the folder of a sweep that says what it is."""

MAY_CHANGE = frozenset(
    {
        "rounds", "backend", "workers", "verbose", "checkpoint-every", "cache-dir", "round-timeout",
        "node-timeout",
    }
)  # fmt: skip
"""Keys that a resumed run may be given anew."""


def checkpoints_of(config: RunConfig) -> CheckpointFolder:
    """The checkpoints of the run that ``resume`` names."""
    return CheckpointFolder(Path(config.resume) / "checkpoint")


def load_checkpoint(config: RunConfig, clients_here: bool) -> Checkpoint | None:
    """The checkpoint that the run goes on from; None if it was stopped before its first.

    Parameters
    ----------
    config : RunConfig
        With ``resume``.
    clients_here : bool
        Whether clients' memories are in the checkpoint (`run_sim.py`) or with the SuperNodes.

    Raises
    ------
    UserError
        When it cannot be read, was made in the other way, or no round is left to do.
    """
    checkpoint = checkpoints_of(config).load()
    if checkpoint is None:
        return None
    if (checkpoint.signature is not None) != clients_here:
        made, here = ("run_sim.py", "flwr run")[:: 1 if clients_here else -1]
        raise not_allowed("resume", config.resume, f"a run of {made}; this is one of {here}")
    if checkpoint.server_round >= config.rounds:
        raise not_allowed("rounds", config.rounds, f"more than the {checkpoint.server_round} done so far")
    return checkpoint


def stored_facts(folder: Path, key: str) -> dict[str, Any]:
    """All that ``config.json`` tells of the run that left this folder.

    Raises
    ------
    UserError
        When it is not such a folder; it begins with the key.
    """
    try:
        return dict(json.loads((folder / "config.json").read_text()))
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


def resumed(values: Mapping[str, UserConfigValue]) -> RunConfig:
    """The configuration of the run that ``resume`` names; a few keys may be given anew.

    An object of one's own must be given anew, where the run was made with one.

    Raises
    ------
    UserError
        For a key that may not, or when there is no such run.
    """
    folder = Path(str(values["resume"]))
    stored = stored_configuration(folder)
    again = {key for key, value in values.items() if is_own(str(value)) and is_own(str(stored.get(key)))}
    check_may_change(values, again | {"resume"})
    return RunConfig.of(stored | dict(values) | {"run-dir": str(folder)})


def check_may_change(values: Mapping[str, UserConfigValue], also: Collection[str]) -> None:
    """Refuse to be given anew, with ``resume``, what is the folder's.

    Raises
    ------
    UserError
        For a key that is neither one of `MAY_CHANGE` nor of these.
    """
    if fixed := values.keys() - MAY_CHANGE - set(also):
        raise UserError(
            f"{min(fixed)}: {values[min(fixed)]!r} is not allowed with resume, which takes the run folder's; "
            f"expected only {', '.join(sorted(MAY_CHANGE))}"
        )


def check_data(federation: Federation) -> None:
    """Refuse to go on with other data than the run was made with.

    Raises
    ------
    UserError
        When their digests differ.
    """
    config = federation.config
    if stored_facts(Path(config.resume), "resume").get("data") != federation.dataset.digest:
        raise UserError(f"resume: {config.dataset!r} no longer holds the data that the run was made with")


def check_unchanged(federation: Federation) -> None:
    """Refuse to go on with another configuration than the run was made with.

    Raises
    ------
    UserError
        For the first key that differs, but for those of `MAY_CHANGE`.
    """
    config = federation.config
    check_data(federation)
    stored = stored_configuration(Path(config.resume))
    for key, value in described(federation).items():
        if key not in MAY_CHANGE | {"resume", "run-dir", *NOT_KEYS} and stored.get(key) != value:
            raise not_allowed(key, value, f"{stored.get(key)!r}, as in the run to resume")


def how_to_go_on(folder: Path) -> str:
    """Where a run or a sweep is that was stopped, and the command that goes on with it; empty before it has
    begun."""
    if not any((folder / name).exists() for name in ("config.json", EXPERIMENT)):
        return ""
    program = ["python", sys.argv[0]] if sys.argv[0].endswith(".py") else [Path(sys.argv[0]).name]
    command = shlex.join([*program, "--resume", str(folder)])
    return f"interrupted; what was done so far is in {folder}; to go on with it: {command}"
