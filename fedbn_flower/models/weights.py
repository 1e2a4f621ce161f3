"""Start a model from weights: a file of entries by name, or the folder of a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from fedbn_flower.clients.modules.arrays import aliases
from fedbn_flower.clients.modules.lazy_torch import nn, torch

from ..core.errors import UserError, not_allowed
from ..core.files import path_of
from ..core.free_memory import check_size
from ..core.stored import json_object
from ..core.text import listed

FORMS = "FILE.safetensors, FILE.pt with a state dict, or the folder of a run"
WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts put the state dict into a ``.pt`` file."""
ADDED_BY_PEFT = re.compile(r"\b(base_model\.model|base_layer|original_module|modules_to_save\.[^.]+)\.")
"""What PEFT adds to the names of a model that it wraps."""
LISTED = 3


@dataclass(frozen=True)
class LoadedWeights:
    """What a model took from a file of weights.

    Parameters
    ----------
    source : str
        The file or folder.
    digest : str
        SHA-256 of the file.
    taken : tuple[str, ...]
        The model's entries that were taken.
    missing : tuple[str, ...]
        Those that the file does not have.
    other_shape : tuple[str, ...]
        Those that have another shape there, or no floats where the model has some, each as
        ``NAME (THERE, not HERE)``.
    unused : tuple[str, ...]
        The file's entries that the model does not have.
    """

    source: str
    digest: str
    taken: tuple[str, ...]
    missing: tuple[str, ...]
    other_shape: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether the file has every entry of the model and no other."""
        return not (self.missing or self.other_shape or self.unused)

    @property
    def left_out(self) -> str:
        """What was not taken, in words; the first of each kind."""
        kinds = {
            "of another shape or type": self.other_shape,
            "not in it": self.missing,
            "not in the model": self.unused,
        }
        return "; ".join(f"{kind}: {_first(names)}" for kind, names in kinds.items() if names)

    def __str__(self) -> str:
        count = len(self.taken) + len(self.missing) + len(self.other_shape)
        line = f"init: {len(self.taken)} of {count} entries are from {self.source!r}"
        return f"{line}; {self.left_out}" if self.left_out else line

    def as_record(self) -> dict[str, Any]:
        """Return all of it for the run's record."""
        return {
            "source": self.source,
            "digest": self.digest,
            "taken": len(self.taken),
            "missing": self.missing,
            "other-shape": self.other_shape,
            "unused": self.unused,
        }


def load_weights(model: nn.Module, source: str, strict: bool = False) -> LoadedWeights:
    """Copy the weights whose name and shape fit into the model, and return what was taken.

    A tied tensor is taken under any of its names. A model that PEFT wraps takes what it wraps under the plain
    names as well. Other floating dtypes are cast.

    Parameters
    ----------
    model : nn.Module
        The model; changed in place.
    source : str
        As `FORMS` says. Of a run's folder, its ``model.safetensors``.
    strict : bool
        Whether all must fit.

    Raises
    ------
    UserError
        When the file cannot be read, holds no weights, or none of them fits; with ``strict``, when one does
        not.
    """
    given, digest = _read(source)
    entries, names = model.state_dict(), aliases(model)
    places = {name: name if name in given else ADDED_BY_PEFT.sub("", name) for name in entries}
    wanted, other_shape, taken = set(places.values()), [], set()
    for name, here in entries.items():
        if (tensor := given.get(places[name])) is None:
            continue
        if tensor.shape == here.shape and tensor.is_floating_point() == here.is_floating_point():
            try:
                here.copy_(tensor)
            except Exception as error:  # a tensor of a hostile file may have no values, or be of any layout
                raise not_allowed("init", source, f"weights with values: {_text(name)} has none") from error
            taken |= {name, *names.get(name, ())}
        else:
            what = _shape if tensor.shape != here.shape else _dtype
            other_shape.append(f"{name} ({what(tensor)}, not {what(here)})")
    found = LoadedWeights(
        source,
        digest,
        tuple(name for name in entries if name in taken),
        tuple(name for name in entries if name not in taken and places[name] not in given),
        tuple(other_shape),
        tuple(_text(name) for name in given if name not in wanted),
    )
    if not taken:
        raise not_allowed("init", source, f"weights of which some fit the model ({found.left_out})")
    if strict and not found.complete:
        raise not_allowed("init", source, f"weights that all fit, with init-strict ({found.left_out})")
    return found


def _read(source: str) -> tuple[dict[str, torch.Tensor], str]:
    """Return the tensors of a file by name, and its digest."""
    from safetensors.torch import load  # imports PyTorch

    path = path_of(source)
    folder = path if path.is_dir() else None
    if folder:
        path = folder / "model.safetensors"
    try:
        content = check_size(path, "init").read_bytes()
        found: Any = (
            load(content)
            if path.suffix == ".safetensors"
            else torch.load(BytesIO(content), map_location="cpu", weights_only=True)
        )
    except FileNotFoundError:
        wanted = FORMS if folder is None else f"a run's folder: it has no {path.name}"
        raise not_allowed("init", source, f"{wanted}, which exists" if folder is None else wanted) from None
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"init: {source!r} cannot be read ({error.strerror or 'it is no file'})") from error
    except Exception as error:  # what a torn or hostile file makes PyTorch raise
        kind = (
            "safetensors file"
            if path.suffix == ".safetensors"
            else "file of tensors alone, all that is loaded"
        )
        raise UserError(f"init: {source!r} cannot be read as weights: it is torn, or no {kind}") from error
    for key in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    items = found.items() if isinstance(found, Mapping) else ()
    tensors = {str(name): tensor for name, tensor in items if isinstance(tensor, torch.Tensor)}
    if not tensors:
        raise not_allowed("init", source, f"{FORMS}: it holds no tensors by name")
    if folder and _has_softmax(folder):
        tensors = {name.removeprefix("0."): tensor for name, tensor in tensors.items()}
    return tensors, hashlib.sha256(content).hexdigest()


def _has_softmax(folder: Path) -> bool:
    """Whether the run had ``softmax-output``, which puts its model into another."""
    try:
        return bool(json_object(folder / "config.json")["softmax-output"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _first(names: Iterable[str]) -> str:
    return listed(list(names), LISTED)


def _text(name: str) -> str:
    """Return a name as it is printed: of a file's names any character may be."""
    return name if name.isprintable() else ascii(name)


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
