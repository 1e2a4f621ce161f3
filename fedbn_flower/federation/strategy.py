"""Make the server rule of a configuration, and what its rounds need."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from math import inf

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict, UserConfig

from fedbn_flower.clients import trainable_names
from fedbn_flower.clients.modules.parameter_names import aliases
from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.aggregation.vectors import Layout
from fedbn_flower.strategies.messages.npy import array_bytes, encoded, encoded_bytes, viewed

from ..config.keys import RUN_KEYS
from ..config.keys.devices import NONE
from ..config.registry import CLIENT, COMPRESS, OBJECTIVE, STRATEGY, as_user_error
from ..config.run_config import RunConfig
from ..config.selection import flags
from ..core.errors import RunFailed, not_allowed
from ..core.ground.overriding import overridden
from ..core.ground.wire import ARRAYS, NUM_EXAMPLES
from ..records.columns import SERVER_LR
from .checks.expected_metrics import expected_metrics, known_beforehand, most_predictions
from .exchange import Exchange, model_to_send
from .inputs import RunInputs, inputs_of
from .participation import Clock, SeededParticipation, availability, held_out_clients, rates_of, share_of_work
from .participation.arrivals import ArrivingBuffers
from .participation.asynchronous import Buffers, Schedule, ScheduledBuffers
from .participation.selection import select_by

WITH_A_STEP = "a class with a server_step(delta, state, round)"
"""What a strategy is to be."""


def make_strategy(inputs: RunInputs) -> PseudoGradientStrategy:
    """Make the configured rule for the run's model and its local entries.

    Raises
    ------
    UserError
        When it has no step, or its constructor raises.
    """
    config, (model, _) = inputs.config, inputs.model()
    rule = STRATEGY.find(config.strategy)
    settings = {name.strip("_"): value for name, value in config.settings_for(rule).items()}
    settings |= known_beforehand(inputs, rule)
    if not overridden(rule, PseudoGradientStrategy, ("server_step", "aggregate_train")):
        raise not_allowed("strategy", config.strategy, WITH_A_STEP)
    with as_user_error("strategy", config.strategy):
        strategy = rule(
            fraction_train=config.fraction_train,
            min_train_nodes=1,
            min_evaluate_nodes=1,
            min_available_nodes=1,
            weighted_by_key=NUM_EXAMPLES if config.weighting == "num-examples" else None,
            trainable=_stepped(inputs),
            tied={names for names in aliases(model).values() if len(names) > 1},
            ask_partitions=True,
            **settings,
        )
    if not _takes_three(strategy.server_step):
        raise not_allowed("strategy", config.strategy, WITH_A_STEP)
    dataset = inputs.dataset
    classes = dataset.spec.outputs if dataset.has_classes else 0
    most = most_predictions(inputs, strategy._max_weight_)
    strategy.expected_metrics = expected_metrics(dataset.problem, classes, most)
    strategy.fraction_evaluate = config.share_evaluating  # Flower's constructor would warn of a 0
    return strategy


def _takes_three(step: Callable[..., object]) -> bool:
    """Return whether a ``server_step`` can be called with its three arguments."""
    try:
        signature(step).bind(None, None, None)
    except TypeError:
        return False
    return True


def _stepped(inputs: RunInputs) -> list[str]:
    """Return the entries that the rule steps: trainable ones that travel."""
    model, _ = inputs.model()
    return [name for name in trainable_names(model) if name not in inputs.local_names]


def step_more(strategy: PseudoGradientStrategy, inputs: RunInputs, before: RunInputs) -> None:
    """Have the rule step what travels and trains by ``inputs``, more than by ``before``.

    The new parameters' state begins as that of the others did.
    """
    stepped, earlier = _stepped(inputs), set(_stepped(before))
    strategy._trainable_names_ = stepped
    shapes = {name: inputs.initial().entries[name] for name in inputs.split.shared}
    layout = Layout(shapes, stepped)
    is_new = {name: np.full(shapes[name].shape, name not in earlier) for name in layout.parameters}
    strategy.rule_state.new = layout.flatten_parameters(is_new) > 0


def set_server_rate(strategy: PseudoGradientStrategy, config: RunConfig, server_round: int) -> None:
    """Set the rule's ``server-lr`` to that of the round, if it has a schedule.

    The rule reads its attribute as ever, so any rule that declares the setting has a schedule.
    """
    if (rate := config.scheduled_rates(server_round).get(SERVER_LR)) is not None:
        setattr(strategy, flags(type(strategy))[SERVER_LR], rate)


def prepare_round(
    strategy: PseudoGradientStrategy,
    inputs: RunInputs,
    server_round: int,
    exchange: Exchange,
    arrays: ArrayRecord,
) -> ArrayRecord:
    """Set what a round of the strategy needs: its ``server-lr``, and how its nodes are selected.

    Return the model as clients get it.
    """
    set_server_rate(strategy, inputs.config, server_round)
    strategy.node_selection = select_by(inputs, exchange, strategy)
    return model_to_send(arrays, inputs.rounded_names)


def client_settings(config: RunConfig) -> UserConfig:
    """Return the settings of the client and of the objective, as train messages carry them."""
    client, objective = CLIENT.find(config.client), OBJECTIVE.find(config.objective)
    return {**config.messages_for(client), **config.messages_for(objective)}


def errors_of_custom_rules(
    config: RunConfig, but: tuple[type[Exception], ...]
) -> AbstractContextManager[None]:
    """Turn exceptions of a user's strategy, ``but`` these, into errors of one line."""
    name = config.strategy
    return nullcontext() if name in STRATEGY.names else as_user_error("strategy", name, RunFailed, but)


def participation(config: RunConfig) -> SeededParticipation:
    """Return who takes part in which round.

    Raises
    ------
    UserError
        When ``availability`` names a file that cannot be used.
    """
    held_out = held_out_clients(config.seed, config.num_clients, config.holdout_clients)
    return SeededParticipation(
        config.seed,
        config.dropout,
        config.stragglers if config.drop_stragglers else 0.0,
        availability(config.availability, config.seed, config.num_clients),
        min(set(range(config.num_clients)) - held_out) if config.reference == "pooled" else None,
        held_out,
        config.over_select,
    )


BY_PARTITION = ("holdout-clients", "availability", "selection", "devices", "reference")
"""The keys that, if they are not the default, say of which partitions a run is, or when each takes part."""


def goes_by_partition(config: RunConfig) -> str:
    """Return the key of this run that goes by partition; empty if there is none."""
    values = config.to_user_config()
    keys = [key for key in BY_PARTITION if values[key] != RUN_KEYS[key].default]
    cyclic = ["dp-sampling cyclic"] if config.dp == "client" and config.dp_sampling == "cyclic" else []
    return next(iter([*keys, *cyclic]), "")


def next_model(
    inputs: RunInputs, updated: ArrayRecord | None, arrays: ArrayRecord, sent: ArrayRecord
) -> ArrayRecord:
    """Return the model after a round, from what the rule made of the model that was sent.

    What rounding took from the parameters, ``x - sent``, is not lost: a rule that makes ``sent + step`` gives
    ``x + step``. The step is of the pseudo-gradient relative to what clients got.
    """
    if updated is None or sent is arrays:
        return updated or arrays
    entries = dict(updated)
    for name in _stepped(inputs):
        moved, x, got = (viewed(record[name]) for record in (updated, arrays, sent))
        with np.errstate(invalid="ignore"):  # an entry may be inf, as in attention masks
            entries[name] = encoded(np.where(x == got, moved, moved + (x - got)).astype(x.dtype))
    return ArrayRecord(entries)


def train_bytes(inputs: RunInputs) -> tuple[int, int]:
    """Return the bytes of the arrays of a train message and of its answer, before there is one.

    Those of prototypes and of struggle scores, which depend on the clients' classes, are not counted.
    """
    config, (model, _) = inputs.config, inputs.model()
    entries = {name: inputs.initial().entries[name] for name in inputs.split.shared}
    sizes = {name: encoded_bytes(array) for name, array in entries.items()}
    with_extras = STRATEGY.find(config.strategy).extras_like_parameters
    extras = sum(sizes[name] for name in _stepped(inputs)) if with_extras else 0
    model_sent = model_to_send(ArrayRecord({n: Array(a) for n, a in entries.items()}), inputs.rounded_names)
    down, up = array_bytes(RecordDict({ARRAYS: model_sent})) + extras, sum(sizes.values()) + extras
    if codec := config.codec:
        names = [name for name, p in model.named_parameters() if p.requires_grad and name in entries]
        coded = {name: entries[name] for name in names if entries[name].dtype.kind == "f"}
        codec = codec.of_shapes(array.shape for array in coded.values())
        with as_user_error(COMPRESS.key, config.compress):
            codes = codec.layout(sum(array.size for array in coded.values())).values()
        up += sum(encoded_bytes(np.empty(*code)) for code in codes) - sum(sizes[name] for name in coded)
    return down, up


def clock_of(inputs: RunInputs) -> Clock | None:
    """Return the clock of a run whose ``devices`` are named.

    Raises
    ------
    UserError
        When they are named by a file that cannot be used.
    """
    config = inputs.config
    if config.devices == NONE:
        return None

    def bytes_in(server_round: int) -> tuple[int, int]:
        return train_bytes(inputs_of(config.at_round(server_round)))

    straggle = config.stragglers and not config.drop_stragglers
    return Clock(
        rates_of(config.devices, config.seed, config.num_clients),
        inputs.partitions.train.sizes,
        config.local_epochs,
        partial(share_of_work, config.seed, config.stragglers) if straggle else None,
        bytes_in,
        config.round_deadline or inf,
    )


def buffers_of(inputs: RunInputs, clock: Clock | None) -> Buffers | None:
    """Return the rounds of an asynchronous protocol, on the run's clock or the real one; else None."""
    config = inputs.config
    if not (protocol := config.asynchronous):
        return None
    if not clock:
        return ArrivingBuffers(protocol, config.seed, config.concurrency)
    everybody = np.arange(config.num_clients)
    clients = sorted(set(everybody.tolist()) - inputs.held_out_clients)
    schedule = Schedule(config.seed, clock.seconds(1, everybody), clients, config.concurrency, protocol.size)
    return ScheduledBuffers(protocol, schedule)
