"""Folders of version 0.1: their models can be loaded, their runs and sweeps not resumed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..federation.inputs import inputs_of
from ..models import InputSpec
from .manifest import EXPERIMENT, stored_facts

OF_DATA = ("dataset", "image-size", "image-column", "label-column", "cache-dir")
"""Keys that decided what the inputs look like."""


def is_of_0_1(facts: Mapping[str, Any]) -> bool:
    """Whether ``config.json`` is of version 0.1."""
    return str(facts.get("versions", {}).get("fedbn-flower", "")).startswith("0.1.")


def check_version(folder: Path, key: str) -> None:
    """Refuse to go on with a run, or with a sweep, of version 0.1.

    Raises
    ------
    UserError
        When it is one; it begins with the key.
    """
    kind, runs = "run", [folder / "config.json"]
    if (folder / "grid.csv").exists() and not (folder / EXPERIMENT).exists():
        kind, runs = "sweep", sorted(folder.glob("*/config.json"))[:1]
    for run in runs:
        if run.exists() and is_of_0_1(facts := stored_facts(run.parent, key)):
            made = f"{str(folder)!r} is a {kind} of version {facts['versions']['fedbn-flower']}"
            raise UserError(
                f"{key}: {made}, which is too old to go on with; load_model still loads its models"
            )


def spec_of(facts: Mapping[str, Any]) -> InputSpec:
    """What inputs of a run of version 0.1 look like, which only its data tell.

    Raises
    ------
    UserError
        When the data cannot be had.
    """
    return inputs_of(RunConfig.of({key: facts[key] for key in OF_DATA if key in facts})).dataset.spec


def entries_of(folder: Path, client: int) -> dict[str, NDArray]:
    """A client's whole model in the last checkpoint of a run of version 0.1: what was shared, and its own.

    Raises
    ------
    UserError
        When the checkpoint has no memory of the client, or cannot be read.
    """
    checkpoint = folder / "checkpoint"
    try:
        with safe_open(checkpoint / "server.safetensors", "np") as file:
            last_round = int(json.loads(file.metadata()["facts"])["round"])
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        files = ((_round(path), path) for path in checkpoint.glob(f"clients/{client}-*.safetensors"))
        complete = [found for found in files if found[0] <= last_round]
        if not complete:
            raise not_allowed("client", client, f"one whose memory is in {str(checkpoint)!r}")
        entries |= load_file(max(complete)[1])
    except (OSError, SafetensorError) as error:
        raise UserError(f"run-dir: {str(checkpoint)!r} cannot be read ({error})") from error
    return {name.split("/", 1)[1]: entry for name, entry in entries.items() if not name.startswith("rule/")}


def _round(path: Path) -> int:
    return int(path.stem.split("-")[1])
