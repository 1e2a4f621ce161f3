"""What ``model`` and ``norm`` may name."""

from collections.abc import Callable

from .. import annexes
from ..core.named_call import OF_LIBRARY, is_of_library
from ..names import FORMS, Registry, parts
from . import MODELS
from .norms import NORMS, Norm


class _Models(Registry[Callable[..., object]]):
    """Networks, ours and those of other libraries."""

    def find(self, name: str) -> Callable[..., object]:
        if not is_of_library(name):
            return super().find(name)
        of_library: Callable[[str], Callable[..., object]] = annexes.load("networks", "of-library", "model")
        return of_library(name)


MODEL = _Models("model", MODELS, forms=f"{FORMS}, or {OF_LIBRARY}")
NORM = Registry("norm", NORMS, Norm)


def models_named(name: str) -> list[str]:
    """The models that a ``+`` joins: the clients have them in turn."""
    return parts(name, MODELS)
