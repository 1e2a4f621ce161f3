"""``torch``, ``nn`` and ``functional``, imported when one of their names is first used.

PyTorch takes seconds to import. Modules that only declare algorithms take it from here, with their
annotations as text, so that ``--help``, ``--list`` and a mistake do not wait for it. A module that derives
classes from ``nn.Module`` imports PyTorch as usual. Once used, these have the attributes of the real modules.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from fedbn_flower.core.ground.collector import no_collection

__all__ = ["functional", "nn", "torch"]

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import functional
else:

    class _LazyModule(ModuleType):
        """Stands for a module that is imported when an attribute is first asked for."""

        def __getattr__(self, name: str) -> object:
            with no_collection():
                value = vars(self)[name] = getattr(import_module(self.__name__), name)
            return value

        def __reduce__(self) -> tuple[object, ...]:
            return import_module, (self.__name__,)

    torch = _LazyModule("torch")
    nn = _LazyModule("torch.nn")
    functional = _LazyModule("torch.nn.functional")
