"""``dp``: its keys and conflicts, and what of an update may leave. The mathematics is in ``privacy/``."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Protocol

from flwr.app import Message, MessageType

from fedbn_flower.clients import FedAvgClient, NamedArrays, Update, by_name
from fedbn_flower.strategies.guarantees import post_processes_mean

from .. import annexes
from ..core.errors import Conflict, Unused
from ..core.ground.columns import PRIVACY
from ..core.ground.settings import KeyGroup, flag_of, setting
from ..core.ground.wire import LOCAL_NORM, LOCAL_STEPS
from ..names import STRATEGY
from ..privacy.accounts import LEAST_EPSILON, MOST_EPSILON
from ..privacy.client_privacy import ClientPrivacy
from ..privacy.local_privacy import released
from ..privacy.private_run import ADAPTIVE, NO_SEED, PrivateRun, against_server, num_answers, num_groups
from ..privacy.run_privacy import RunPrivacy
from ..records.events import RoundResult, RunInfo
from .at_site import AtClient, Outgoing
from .base import Carry, Extension, Moment, Stop
from .declared import About
from .holdout import num_training
from .selection import sampled

LOGGER = logging.getLogger("flwr.fedbn")

Unfit = Iterator[tuple[str, str]]
"""Keys whose values are incompatible with privacy, each with the allowed values."""

CLIP = f"a number > 0, or {ADAPTIVE}"
WHOLE = 0.005
"""Tolerance of the number of groups times fraction-train from 1: 0.333 counts as a third."""
EXAMPLE_CLIENTS = frozenset({"shared", "silobn", "fedbn", "fedper"})
"""Clients that train once per round, with ``dp`` example by DP-SGD."""
NO_METRICS: Mapping[str, object] = {
    "eval-model": "aggregated",
    "fine-tune": 0,
    "adapt-bn": False,
    "holdout-clients": 0,
}
"""Keys that have no effect if clients send no metrics, with their defaults."""
NOT_CLIENTS = "since not clients are protected"
POST_PROCESSING = "a rule that declares post_processes_mean = True"
NONE = "none"
LEAST_DELTA = 1e-15
"""The smallest delta that can be accounted for with floats."""
PUBLIC = frozenset({LOCAL_STEPS, LOCAL_NORM})
"""What of the training metrics is public with ``dp`` example: it follows from what is counted."""
COUNTS_AS_ONE = 1
"""The number of examples that a client reports with ``dp`` local, where its own is private."""


class PrivacyKeys(KeyGroup):
    """Differential privacy"""

    of_references = False
    protects = True
    after = "mixing"

    dp: Literal["none", "client", "local", "example"] = setting(
        "none",
        description="the published models tell almost nothing about whether a client took part, or about a "
        "single example; with local, each client adds the noise itself",
    )
    dp_epsilon: float = setting(
        0.0, ge=0, description="privacy budget, from which the noise is derived; 0 with dp-noise"
    )
    dp_delta: float = setting(
        0.0,
        ge=0,
        lt=1,
        description="probability with which epsilon need not hold; choose it below 1/num-clients",
    )
    dp_noise: float = setting(
        0.0,
        ge=0,
        description="standard deviation of the noise on the sum, in units of dp-clip; 0 with dp-epsilon",
    )
    dp_clip: Annotated[Annotated[float, setting(gt=0)] | Literal["adaptive"], CLIP] = setting(
        1.0,
        description="bound on the L2 norm of a client's update or of an example's gradient; adaptive "
        "follows the median norm of the updates",
    )
    dp_sampling: Literal["poisson", "fixed", "all", "cyclic"] = setting(
        "poisson",
        description="who trains in a round: each client with probability fraction-train, a sample of fixed "
        "size, all, or one of 1/fraction-train fixed groups in turn",
    )
    dp_bands: int = setting(
        0,
        ge=0,
        description="with dp-sampling cyclic, the number of rounds over which noise is correlated; 1 for "
        "independent noise, 0 for as many as there are groups",
    )
    dp_secure_noise: bool = setting(
        False,
        description="draw discrete noise exactly, on a grid to which updates are rounded, against attacks "
        "on the rounding of floats; it costs more epsilon",
    )
    dp_metrics: float = setting(
        0.0,
        ge=0,
        description="with local and example, the epsilon that all metrics of a client cost it in addition "
        "to training; they are clipped, and noise is added, before they leave it; 0 for no "
        "metrics",
    )
    dp_scale: str = setting(
        "",
        description="with example and tables, the public scale of numbers, COLUMN=MEAN:DEVIATION with "
        "commas; others are not scaled, since the clients' own means would reveal single rows",
    )
    dp_unit: str = setting(
        "",
        description="with example and tables, the column by whose values rows are protected together, such "
        "as a patient's: they are sampled, clipped and counted as one",
    )
    dp_seed: int = setting(
        NO_SEED,
        ge=NO_SEED,
        lt=2**63,
        description="makes sampling and noise repeatable, for simulations only; -1 uses a secret key",
    )
    dp_honest: float = setting(
        1.0,
        gt=0,
        le=1,
        description="with secagg, the share of a round's clients that keep their share of the noise to "
        "themselves; the noise grows accordingly",
    )
    dp_simulate_cohort: int = setting(
        0,
        ge=0,
        description="add noise as for this many clients a round, a hypothetical run; 0 for none",
    )
    dp_simulate_population: int = setting(
        0, ge=0, description="number of clients of that hypothetical run; 0 for num-clients"
    )

    @property
    def clip(self) -> float | None:
        """The number of ``dp-clip``; None if it adapts."""
        return None if self.dp_clip == ADAPTIVE else float(self.dp_clip)


DEFAULTS = {flag_of(name): field.default for name, field in PrivacyKeys.model_fields.items()}


class Account(Protocol):
    """The privacy of a run; see `privacy.run_privacy.RunPrivacy`."""

    def begin_round(self, server_round: int) -> bool:
        """Return whether the round that is about to begin will exhaust the budget."""

    def ask(self, server_round: int, clients: Sequence[int]) -> None:
        """Account for the clients that are about to be asked to train, given by partition id."""

    def told(self) -> Mapping[str, float]:
        """Return the settings that messages carry."""

    def columns(self, server_round: int) -> Mapping[str, float]:
        """Return a complete round's columns of ``metrics.csv``."""

    def summary(self) -> Mapping[str, Any]:
        """Return the entries of ``summary.json``."""


def account_of_clients(config: PrivateRun, parameters: int) -> RunPrivacy:
    """Return the account of a run with ``dp`` client: for noise added by the server, or in shares by clients.

    Raises
    ------
    UserError
        As these accounts do.
    """
    if config.against_server:
        summed: RunPrivacy = annexes.load("accounts", "secagg")(config, parameters)
        return summed
    return ClientPrivacy(config, parameters)


class Privacy(Extension):
    """Accounts each round before any client is asked to train, and ends a run whose budget is exhausted.

    Parameters
    ----------
    run : RunInfo
        The run.
    account : Account, optional
        Its privacy account; None without ``dp``.
    complete : callable
        Called with the clients about to be asked and the round, before these are accounted.
    """

    place = 80  # before patience: without budget the run could not have gone on anyway
    reserves = PRIVACY
    beside = True
    in_workers = True

    def __init__(
        self, run: RunInfo, account: Account | None, complete: Callable[[Sequence[int], Moment], None]
    ) -> None:
        super().__init__(run)
        self.account = account
        self.complete = complete
        self.header = PRIVACY if account else ()
        self.spent = False
        self.last: Mapping[str, float] = {}

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if (notion := config["dp"]) == NONE:
            given = (key for key, default in DEFAULTS.items() if config[key] != default)
            why = "without dp; give dp=client, example or local"
            yield from (Unused(key, config[key], why) for key in given)
            return
        for key, wanted in _unfit(config):
            yield Conflict(key, config[key], f"{wanted} with dp {notion!r}")

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        notion = config["dp"]
        return About(
            apart="" if notion == NONE else f"with dp {notion!r} a round is accounted before the next"
        )

    def before_round(self, server_round: int) -> Stop | None:
        self.spent = bool(self.account and self.account.begin_round(server_round))
        return Stop("budget") if self.spent else None

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        return self.account.told() if self.account else {}

    def prepare(self, moment: Moment) -> None:
        if self.account:
            moment.exchange.carry = partial(self._accounted, self.account, moment, moment.exchange.carry)

    def _accounted(
        self, account: Account, moment: Moment, carry: Carry, phase: str, messages: list[Message]
    ) -> Iterable[Message]:
        """Account for a round before its messages are sent; return the answers."""
        if phase == MessageType.TRAIN:
            partition = moment.rule.node_directory.partition
            partitions = [partition(message.metadata.dst_node_id) for message in messages]
            self.complete(partitions, moment)
            account.ask(moment.number, partitions)
        return carry(phase, messages)

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return the update as it may leave the client: with noise, if the server is not trusted."""
        update = outgoing.update
        if at.config.dp == "local":
            update = released(at.config, at.client, at.received(), update, at.number)
        elif at.config.dp == "example":
            update = only_trained(at.client, at.received(), update)
        return outgoing.with_update(without_metrics(at.config, update))

    def after_round(self, result: RoundResult) -> Stop | None:
        self.last = self.account.columns(result.server_round) if self.account else {}
        if not self.spent or result.server_round == self.run.rounds:  # the ledger refuses further ones
            return None
        LOGGER.warning("privacy: budget spent at round %d of %d", result.server_round, self.run.rounds)
        return Stop("budget")

    def columns(self) -> Mapping[str, float]:
        return self.last

    def summary(self) -> Mapping[str, Any]:
        return {"privacy": self.account.summary()} if self.account else {}


def _unfit(config: Mapping[str, Any]) -> Unfit:
    """Yield each key whose value is incompatible with privacy, with the allowed values."""
    for key in ("compress", "compress-down"):
        if config[key] != NONE:
            yield key, repr(NONE)
    yield from _unfit_noise(config)
    yield from _unfit_scale(config)
    yield from _unfit_unit(config)
    summed = against_server(config) and config["dp"] == "client"
    if config["dp-honest"] < 1 and not summed:
        yield "dp-honest", "1.0 without secagg and dp client, since no noise is added in shares,"
    if summed:
        yield from _unfit_summed(config)
    else:
        yield from _unfit_client(config) if config["dp"] == "client" else _unfit_at_clients(config)
    if config["selection"] != "uniform":
        yield "selection", "'uniform', since who trains would tell of the clients' data,"
    if config["normalize"]:
        yield "normalize", "false, since its means are of all training data,"
    if config["inspect"]:
        yield "inspect", "false, since counts are of all training data,"
    if config["patience"]:
        yield "patience", "0, since clients' metrics would decide what is published,"
    if config["best"] != "auto":
        yield "best", "'auto', since clients' metrics would decide what is published,"
    if config["stop-at-target"]:
        yield "stop-at-target", "false, since clients' metrics would decide what is published,"


def _unfit_noise(config: Mapping[str, Any]) -> Unfit:
    if not config["dp-epsilon"] and not config["dp-noise"]:
        yield "dp-epsilon", "a number > 0, or a dp-noise > 0,"
    for key in ("dp-epsilon", "dp-metrics"):
        if config[key] and not LEAST_EPSILON <= config[key] <= MOST_EPSILON:
            yield key, f"a number in [{LEAST_EPSILON:g}, {MOST_EPSILON:g}]"
    if config["dp-epsilon"] and config["dp-noise"]:
        yield "dp-noise", "0, since dp-epsilon is given,"
    if config["dp-delta"] < LEAST_DELTA:
        of_clients = f"1/num-clients ({1 / num_training(config):.2g})"
        below = of_clients if config["dp"] != "example" else "1/examples"
        yield "dp-delta", f"a number from {LEAST_DELTA:g} on, below {below},"


def _unfit_at_clients(config: Mapping[str, Any]) -> Unfit:
    local = config["dp"] == "local"
    if config["dp-clip"] == ADAPTIVE:
        yield "dp-clip", "a number > 0"
    why = "since no sampling hides a client from who reads its messages" if local else NOT_CLIENTS
    for key in ("dp-sampling", "dp-bands", "dp-simulate-cohort", "dp-simulate-population"):
        if config[key] != (default := DEFAULTS[key]):
            yield key, f"{default!r}, {why},"
    if config["dp-secure-noise"]:
        yield "dp-secure-noise", "false, since clients add the noise,"
    for key, default in NO_METRICS.items():
        if config[key] != default:
            yield key, f"{_shown(default)}, since clients send no other metrics than dp-metrics,"
    yield from _unfit_local(config) if local else _unfit_example(config)


def _unfit_local(config: Mapping[str, Any]) -> Unfit:
    if config["weighting"] == "num-examples":
        yield "weighting", "'uniform', since a client's number of examples is its own,"
    if not post_processes_mean(STRATEGY.find(config["strategy"])):
        yield "strategy", POST_PROCESSING


def _unfit_example(config: Mapping[str, Any]) -> Unfit:
    if config["precision"] != "fp32":
        yield "precision", "'fp32'"
    if set(config["client"].split("+")) - EXAMPLE_CLIENTS:
        yield "client", f"one of {', '.join(sorted(EXAMPLE_CLIENTS))}, or some of these"


def _unfit_scale(config: Mapping[str, Any]) -> Unfit:
    if config["dp-scale"] and config["dp"] != "example":
        yield "dp-scale", "none, since clients' own means do not leave them,"


def _unfit_unit(config: Mapping[str, Any]) -> Unfit:
    if config["dp-unit"] and config["dp"] != "example":
        yield "dp-unit", "none, since each client is protected with all of its rows,"
    if config["dp-unit"] and config["dp-metrics"]:
        yield "dp-metrics", "0 with dp-unit, since metrics are those of single examples,"


def _unfit_summed(config: Mapping[str, Any]) -> Unfit:
    """Yield what is incompatible with noise that clients add before secure aggregation."""
    if config["dp-metrics"]:
        yield "dp-metrics", "0 with secagg, since no metrics leave a client,"
    if config["dp-sampling"] not in (DEFAULTS["dp-sampling"], "all"):
        yield "dp-sampling", "'all' with secagg, since the server sees who takes part,"
    if config["dp-sampling"] == "all" and config["fraction-train"] < 1:
        yield "fraction-train", "1.0 with dp-sampling 'all'"
    for key in ("dp-bands", "dp-simulate-cohort", "dp-simulate-population", "dp-secure-noise"):
        if config[key] != DEFAULTS[key]:
            yield key, f"{_shown(DEFAULTS[key])} with secagg, since clients add the noise,"
    for key, default in NO_METRICS.items():
        if config[key] != default:
            yield key, f"{_shown(default)} with secagg, since no metrics leave a client,"
    if config["secagg-bits"]:
        yield "secagg-bits", "0, since the noise decides how finely numbers are rounded,"
    yield from _unfit_mean(config)


def _shown(value: object) -> str:
    return "false" if value is False else repr(value)


def _unfit_client(config: Mapping[str, Any]) -> Unfit:
    if config["dp-metrics"]:
        yield "dp-metrics", "0, since the server is trusted with metrics,"
    if config["dp-sampling"] == "all" and config["fraction-train"] < 1:
        yield "fraction-train", "1.0 with dp-sampling 'all'"
    if config["dp-secure-noise"] and config["dp-sampling"] in ("fixed", "cyclic"):
        yield "dp-sampling", "'poisson' or 'all' with dp-secure-noise"
    yield from _unfit_turns(config)
    yield from _unfit_simulation(config)
    yield from _unfit_mean(config)


def _unfit_mean(config: Mapping[str, Any]) -> Unfit:
    """Yield settings under which one client moves the mean by more than clip / n with a public n."""
    if config["weighting"] == "num-examples":
        yield "weighting", "'uniform', since the sum of the weights is private,"
    if not post_processes_mean(STRATEGY.find(config["strategy"])):
        yield "strategy", POST_PROCESSING
    if config.get("mean", "weighted") != "weighted":
        yield "mean", "'weighted', since one client can move another mean further than its clip,"
    if config.get("clip-update-norm"):
        yield "clip-update-norm", "0 (dp-clip is that bound)"
    if config.get("min-replies", 1) > 1:
        yield "min-replies", "1, since a round left out would tell how many answered,"


def _unfit_turns(config: Mapping[str, Any]) -> Unfit:
    sampling, share, bands = config["dp-sampling"], config["fraction-train"], config["dp-bands"]
    most = num_training(config)
    if not (groups := num_groups(sampling, share)):
        if bands:
            yield "dp-bands", f"0 with dp-sampling {sampling!r}"
        return
    if groups > most or abs(groups * share - 1) > WHOLE:
        yield "fraction-train", f"1 over a whole number up to {most} with dp-sampling 'cyclic'"
    if bands > groups:
        yield "dp-bands", f"at most {groups}, the groups that take turns,"
    if config["dp-clip"] == ADAPTIVE:
        yield "dp-clip", "a number with dp-sampling 'cyclic'"


def _unfit_simulation(config: Mapping[str, Any]) -> Unfit:
    cohort, population = config["dp-simulate-cohort"], config["dp-simulate-population"]
    sampling, share, clients = config["dp-sampling"], config["fraction-train"], num_training(config)
    answers, groups = num_answers(sampling, share, clients, sampled(config)), num_groups(sampling, share)
    if population and not cohort:
        yield "dp-simulate-population", "0 without dp-simulate-cohort"
    if cohort and cohort < answers:
        yield "dp-simulate-cohort", f"at least {answers:g}, the clients of a round,"
    if cohort > (population or clients):
        yield "dp-simulate-cohort", "at most dp-simulate-population"
    if cohort and sampling == "all" and population not in (0, cohort):
        yield "dp-simulate-population", f"{cohort}, all of them, with dp-sampling 'all'"
    if cohort and groups and (population or clients) != cohort * groups:
        wanted = f"{cohort * groups}, dp-simulate-cohort times the groups that take turns,"
        yield "dp-simulate-population", wanted


def without_metrics(config: PrivateRun, update: Update) -> Update:
    """Return an update as it may leave: without metrics, but for those that are public.

    With ``dp`` example the numbers of examples, or of units, and of steps are public; otherwise nothing is.
    """
    if not config.against_server:
        return update
    if config.dp != "example":
        return Update(update.arrays, COUNTS_AS_ONE, {}, update.records)
    public = {name: value for name, value in update.metrics.items() if name in PUBLIC}
    return Update(update.arrays, update.num_examples, public, update.records)


def only_trained(client: FedAvgClient, received: NamedArrays, update: Update) -> Update:
    """Return an update in which what is not trained is as it was received.

    With ``dp`` example only gradients have noise, and a model might write other things into its buffers.
    """
    trained = {alias for name in client.trained_names for alias in client.aliases.get(name, (name,))}
    entries, before = by_name(update.arrays, client.shared_names), received.by_name()
    sent = {name: entries[name] if name in trained else before[name] for name in entries}
    return Update(NamedArrays(sent), update.num_examples, update.metrics, update.records)
