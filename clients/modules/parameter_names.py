"""The names of a model's tensors: one that is tied has several."""

from collections.abc import Mapping

from torch import nn


def trainable_names(model: nn.Module) -> list[str]:
    """Every name of every parameter that is trained: a tied one is there under each of its names."""
    return [name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]


def aliases(model: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """All names of the tensor, itself included, by name of a parameter or buffer."""
    names: dict[int, list[str]] = {}
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    for name, tensor in tensors:
        names.setdefault(id(tensor), []).append(name)
    return {name: tuple(names[id(tensor)]) for name, tensor in tensors}
