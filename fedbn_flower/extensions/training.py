"""Which parts of a model train in a round, and at which rates.

``freeze``, ``train`` and ``unfreeze-at``; ``client-lr-schedule`` and ``server-lr-schedule``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from flwr.app import ArrayRecord, MessageType

from fedbn_flower.clients.modules.moments import MEAN, VARIANCE, pooled
from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.messages.npy import encoded, viewed

from ..core.errors import Conflict
from ..core.ground.columns import RATES
from ..core.ground.settings import KeyGroup, setting
from ..core.ground.wire import CLIENT_LR
from ..names import CLIENT
from ..records.events import RoundResult, RunInfo
from .base import Moment, ServerHook
from .declared import About

Patterns = Annotated[
    str, "names of modules or parameters separated by commas, with * and ? as in file names: layer1,*.bias"
]


class FreezingKeys(KeyGroup):
    """Pretrained and partly trained models"""

    after = "init-strict"

    freeze: Patterns = setting("", description="parts of the model that do not train and are never sent")
    train: Patterns = setting(
        "", description="the only parts that train, all others being frozen; empty for all"
    )
    unfreeze_at: int = setting(
        0,
        ge=0,
        description="round from which on everything that freeze or train has frozen trains; 0 for never",
    )
    frozen_bn: Literal["eval", "adapt"] = setting(
        "eval",
        description="whether frozen BatchNorm keeps its statistics, or adapts them to the data during "
        "training",
    )

    def at_round(self, server_round: int) -> Self:
        """Return the configuration of a round; from ``unfreeze-at`` on, nothing is frozen."""
        if not 0 < self.unfreeze_at <= server_round:
            return self
        return self.model_copy(update={"freeze": "", "train": "", "unfreeze_at": 0})


class Freezing(ServerHook):
    """Freezes parts of the model, for the whole run or for its first rounds."""

    place = 60

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        since = config["unfreeze-at"]
        return About(apart=f"from round {since} on more of the model travels (unfreeze-at)" if since else "")

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if not (since := config["unfreeze-at"]):
            return
        if not (config["freeze"] or config["train"]):
            yield Conflict("unfreeze-at", since, "0 without freeze or train")
        if not 2 <= since <= config["rounds"]:
            yield Conflict("unfreeze-at", since, f"0, or a round from 2 to {config['rounds']}")


class Rates(ServerHook):
    """Sends clients their learning rate, and sets the rule's, in runs with a schedule.

    Parameters
    ----------
    run : RunInfo
        The run.
    scheduled : callable
        Returns the scheduled learning rates of a round, by key.
    set_rates : callable
        Sets a rule's ``server-lr`` to that of a round, if it has a schedule.
    """

    place = 120
    reserves = RATES

    def __init__(
        self,
        run: RunInfo,
        scheduled: Callable[[int], Mapping[str, float]],
        set_rates: Callable[[PseudoGradientStrategy, int], None],
    ) -> None:
        super().__init__(run)
        self.scheduled = scheduled
        self.set_rates = set_rates
        self.header = tuple(scheduled(1))
        self.rates: Mapping[str, float] = {}

    def prepare(self, moment: Moment) -> None:
        self.set_rates(moment.rule, moment.number)

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        if phase != MessageType.TRAIN and not self.run.config["fine-tune"]:
            return {}
        return {CLIENT_LR: self.scheduled(moment.number).get(CLIENT_LR, self.run.config[CLIENT_LR])}

    def after_round(self, result: RoundResult) -> None:
        self.rates = self.scheduled(result.server_round)

    def columns(self) -> Mapping[str, float]:
        return self.rates


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
