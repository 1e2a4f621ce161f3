"""BatchNorm statistics pooled by the server from the moments that clients gather: ``fbn`` and ``hbn``."""

from collections.abc import Callable, Sequence

from flwr.app import ArrayRecord

from fedbn_flower.clients.modules.moments import MEAN, VARIANCE, pooled
from fedbn_flower.strategies.messages.npy import encoded, viewed

from ..names import CLIENT
from ..records.events import RunInfo
from .base import Moment, ServerHook


class PooledStatistics(ServerHook):
    """Computes BatchNorm statistics of all clients' inputs from the moments that clients sent.

    Parameters
    ----------
    run : RunInfo
        The run.
    layers : callable
        Returns the names of the layers whose statistics are pooled.
    """

    place = 20  # replaces moments before anything reads them as statistics

    def __init__(self, run: RunInfo, layers: Callable[[], Sequence[str]]) -> None:
        super().__init__(run)
        key = CLIENT.find(str(run.config["client"])).pooled_by
        self.share = float(run.config[key]) if key else 0.0
        self.layers = layers

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        if not self.share:
            return model
        entries = dict(model)
        for layer in self.layers():
            names = {kind: f"{layer}.{kind}" if layer else kind for kind in (MEAN, VARIANCE)}
            if not entries.keys() >= set(names.values()):  # the layers are frozen
                continue
            was = {kind: viewed(sent[name]) for kind, name in names.items()}
            gathered = {kind: viewed(entries[name]) for kind, name in names.items()}
            found = pooled(gathered[MEAN], gathered[VARIANCE], was, self.share)
            entries |= {name: encoded(array) for name, array in zip(names.values(), found, strict=True)}
        return ArrayRecord(entries)
