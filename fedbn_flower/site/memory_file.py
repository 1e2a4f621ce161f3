"""A client's memory as a safetensors file, with its origin and a digest as metadata.

A SuperNode's ``state-dir`` and the client files of a checkpoint share this format.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedbn_flower.clients import FORMER_NAMES, Groups

from ..core.files import digest_of
from ..core.free_memory import regular
from ..records.array_file import array_file, writable

FILE = "a client's memory"
"""The name of such a file in messages."""
SIGNATURE, DIGEST, KEEP_DAYS = "signature", "digest", "keep-days"


class InvalidMemory(Exception):
    """A memory file cannot be used; the message gives the reason."""


def signature(name: str, client: str, objective: str, initial: Mapping[str, NDArray]) -> str:
    """Return a hash of what a memory depends on: the names, and the entries' names, dtypes and shapes.

    A renamed algorithm keeps its first name here, so that older memories still fit.
    """
    first_names = {now: before for names in FORMER_NAMES.values() for before, now in names.items()}
    client, objective = first_names.get(client, client), first_names.get(objective, objective)
    model = sorted((name, str(entry.dtype), list(entry.shape)) for name, entry in initial.items())
    return hashlib.sha256(json.dumps([name, client, objective, model]).encode()).hexdigest()


def pack(groups: Groups, metadata: Mapping[str, str]) -> bytes:
    """Return the content of a memory file; each array is stored as ``GROUP/NAME``."""
    arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items()}
    entries = writable(FILE, arrays)
    return array_file(FILE, entries, {**metadata, DIGEST: digest_of(entries)})


def keep_days(path: Path) -> float:
    """Return the days after which a file expires; 0 if it states none, or cannot be read.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    """
    try:
        with safe_open(regular(path), "np") as file:
            return float((file.metadata() or {}).get(KEEP_DAYS, "0"))
    except FileNotFoundError:
        raise
    except (OSError, SafetensorError, ValueError):
        return 0.0


def unpack(path: Path, metadata: Mapping[str, str]) -> dict[str, dict[str, NDArray]]:
    """Return the memory in a file.

    Raises
    ------
    InvalidMemory
        When the file cannot be read, is damaged, or its metadata differ from ``metadata``.
    """
    try:
        with safe_open(regular(path), "np") as file:
            found = dict(file.metadata() or {})
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InvalidMemory(f"the file cannot be read ({error})") from error
    for key, expected in metadata.items():
        if found.get(key) != expected:
            if key == SIGNATURE:
                raise InvalidMemory("it belongs to another model, client, objective or memory-name")
            raise InvalidMemory(f"its {key} is {found.get(key)!r}; expected {expected!r}")
    if found.get(DIGEST) != digest_of(entries):  # after a crash a file of full length may lack blocks
        raise InvalidMemory("the file is damaged")
    groups: dict[str, dict[str, NDArray]] = {}
    for key, array in entries.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = array
    return groups
