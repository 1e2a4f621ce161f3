"""The base of clients that gather BatchNorm statistics for the server to pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from flwr.common import Scalar

from ..base import FedAvgClient
from ..modules.arrays import to_array
from ..modules.lazy_torch import torch
from ..modules.moments import Moments
from ..training import LocalRun
from ..update import NamedArrays, Update


class PoolingClient(FedAvgClient):
    """Sends moments of what goes into BatchNorm layers in the place of their statistics; see `moments`."""

    decides = "BatchNorm"
    requires: ClassVar[Mapping[str, set[Any]]] = {
        "protocol": {"sync"},
        "compress": {"none"},
        "compress-down": {"none"},
        "mean": {"weighted"},
    }
    gathered: Moments | None = None
    """What it gathered in this call."""

    def end_run(
        self,
        run: LocalRun,
        metrics: dict[str, float],
        entries: Mapping[str, torch.Tensor],
        config: Mapping[str, Scalar],
        copy: bool = True,
    ) -> Update:
        """Return the model with the moments in it.

        Raises
        ------
        FloatingPointError
            As without them; when the model is finite, but not what went into a layer.
        """
        update = super().end_run(run, metrics, entries, config, copy)
        sent = dict(zip(self.shared_names, update.arrays, strict=True))
        for name, moment in (self.gathered or {}).items():
            if name in sent:
                found = moment.to(entries[name].dtype)
                if not found.isfinite().all():
                    raise FloatingPointError(f"training diverged: {name} of what was gathered is not finite")
                sent[name] = to_array(found)
        return Update(NamedArrays(sent), *update[1:], update.records)
