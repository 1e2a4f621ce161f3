"""A client's memory as a file: safetensors, with what it is of and a digest as metadata.

The format of a SuperNode's ``state-dir`` and of a checkpoint's client files alike.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedbn_flower.clients import Groups

SIGNATURE, DIGEST = "signature", "digest"


class MemoryRefused(Exception):
    """A file cannot be used; the message says why."""


def signature(name: str, client: str, objective: str, initial: Mapping[str, NDArray]) -> str:
    """Tells what a memory fits: the names, and those, shapes and dtypes of the model's entries."""
    model = sorted((name, str(entry.dtype), list(entry.shape)) for name, entry in initial.items())
    return hashlib.sha256(json.dumps([name, client, objective, model]).encode()).hexdigest()


def pack(groups: Groups, facts: Mapping[str, str]) -> bytes:
    """The content of a file: every array as ``GROUP/NAME``."""
    entries = {
        f"{group}/{name}": np.require(array, requirements="C")
        for group, arrays in groups.items()
        for name, array in arrays.items()
    }
    return save(entries, {**facts, DIGEST: _digest(entries)})


def unpack(path: Path, facts: Mapping[str, str]) -> dict[str, dict[str, NDArray]]:
    """The memory in a file.

    Raises
    ------
    MemoryRefused
        When the file cannot be read, is damaged, or is of something else than ``facts`` say.
    """
    try:
        with safe_open(path, "np") as file:
            found = dict(file.metadata() or {})
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise MemoryRefused(f"it cannot be read ({error})") from error
    for key, expected in facts.items():
        if found.get(key) != expected:
            if key == SIGNATURE:
                raise MemoryRefused("it is of another model, client, objective or memory-name")
            raise MemoryRefused(f"it is of {key} {found.get(key)!r}, not {expected!r}")
    if found.get(DIGEST) != _digest(entries):
        raise MemoryRefused("it is damaged")
    groups: dict[str, dict[str, NDArray]] = {}
    for key, array in entries.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = array
    return groups


def _digest(entries: Mapping[str, NDArray]) -> str:
    """Of names, dtypes, shapes and contents: a file may have its length and yet not all its blocks."""
    digest = hashlib.sha256()
    for name, entry in sorted(entries.items()):
        digest.update(json.dumps([name, str(entry.dtype), list(entry.shape)]).encode())
        digest.update(np.ascontiguousarray(entry).data)
    return digest.hexdigest()
