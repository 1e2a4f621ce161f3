"""How a run's models normalise: what replaces BatchNorm, and the momentum of its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from fedbn_flower.clients.modules.batch_norm import batch_norm_modules
from fedbn_flower.clients.modules.lazy_torch import nn, torch

from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..models.named import NORM
from ..names import as_user_error, made

CUMULATIVE = "cumulative"
AS_BUILT = "auto"


class Normalisation(NamedTuple):
    """The keys ``norm`` and ``bn-momentum``."""

    norm: str = "keep"
    bn_momentum: float | str = AS_BUILT

    @classmethod
    def of(cls, config: RunConfig) -> Normalisation:
        return cls(config.norm, config.bn_momentum)

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any]) -> Normalisation:
        """Return that of a run's record; records of former versions have neither key."""
        return cls(str(manifest.get("norm", "keep")), manifest.get("bn-momentum", AS_BUILT))

    def applied(self, model: nn.Module) -> nn.Module:
        """Apply it to a model, in place; the result is the same object unless the model is a lone BatchNorm.

        Raises
        ------
        UserError
            When a layer cannot be replaced, or has no cumulative mean.
        """
        norm = made(NORM, self.norm)
        with as_user_error(NORM.key, self.norm, but=(ValueError,)):
            try:
                model = norm.replace(model)
            except ValueError as error:
                raise not_allowed(NORM.key, self.norm, str(error)) from None
        if self.bn_momentum != AS_BUILT:
            self._set_momentum(model)
        return model

    def _set_momentum(self, model: nn.Module) -> None:
        for name, layer in batch_norm_modules(model):
            if self.bn_momentum == CUMULATIVE and isinstance(layer, nn.modules.instancenorm._InstanceNorm):
                kind = type(layer).__name__
                wanted = f"a number with this model: torch has no cumulative mean for {name!r}, {kind}"
                raise not_allowed("bn-momentum", CUMULATIVE, wanted)
            layer.momentum = None if self.bn_momentum == CUMULATIVE else float(self.bn_momentum)


UNCHANGED = Normalisation()


@contextmanager
def layers_of_single_values(model: nn.Module) -> Iterator[list[str]]:
    """Yield a list that collects, in forward passes, GroupNorm layers with groups of a single value.

    A single value minus its mean is always 0.
    """
    found: list[str] = []

    def watch(name: str, layer: nn.GroupNorm) -> Any:
        def count(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            if inputs[0][0].numel() == layer.num_groups:
                found.append(name)

        return layer.register_forward_pre_hook(count)

    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.GroupNorm)]
    hooks = [watch(name, layer) for name, layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
