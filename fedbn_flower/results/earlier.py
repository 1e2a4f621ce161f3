"""Folders of version 0.1: their models can be loaded, but their runs and sweeps cannot be resumed."""

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
from .manifest import EXPERIMENT, read_manifest

DATA_KEYS = ("dataset", "image-size", "image-column", "label-column", "cache-dir")
"""Keys that determine the shape and type of the inputs."""


def is_version_0_1(manifest: Mapping[str, Any]) -> bool:
    """Return whether a ``config.json`` was written by version 0.1."""
    return str(manifest.get("versions", {}).get("fedbn-flower", "")).startswith("0.1.")


def check_version(folder: Path, key: str) -> None:
    """Refuse to resume a run or a sweep of version 0.1.

    Raises
    ------
    UserError
        When the folder is of version 0.1; the message begins with the key.
    """
    kind, runs = "run", [folder / "config.json"]
    if (folder / "grid.csv").exists() and not (folder / EXPERIMENT).exists():
        kind, runs = "sweep", sorted(folder.glob("*/config.json"))[:1]
    for run in runs:
        if run.exists() and is_version_0_1(manifest := read_manifest(run.parent, key)):
            old = f"{str(folder)!r} is a {kind} of version {manifest['versions']['fedbn-flower']}"
            raise UserError(f"{key}: {old}, which is too old to resume; load_model still loads its models")


def input_spec(manifest: Mapping[str, Any]) -> InputSpec:
    """Return the input spec of a run of version 0.1, read from its data: the folder does not store it.

    Raises
    ------
    UserError
        When the data are not available.
    """
    values = {key: manifest[key] for key in DATA_KEYS if key in manifest}
    return inputs_of(RunConfig.of(values)).dataset.spec


def client_entries(folder: Path, client: int) -> dict[str, NDArray]:
    """Return a client's full state dict, shared and local entries, in a version 0.1 run's last checkpoint.

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
