"""Where the entries of models on a GPU go on the processor: memory that is kept."""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

_KEPT: WeakKeyDictionary[nn.Module, dict[str, Tensor]] = WeakKeyDictionary()
"""Page-locked memory for the entries of models on a GPU, by model: new pages cost more than the copy."""


def on_cpu(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's entries on the processor, valid until the next call; there they are its own."""
    entries = model.state_dict()
    if all(entry.device.type == "cpu" for entry in entries.values()):
        return entries
    if model not in _KEPT:
        _KEPT[model] = {
            name: torch.empty(entry.shape, dtype=entry.dtype, pin_memory=True)
            for name, entry in entries.items()
        }
    kept = _KEPT[model]
    for name, entry in entries.items():
        kept[name].copy_(entry, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return kept
