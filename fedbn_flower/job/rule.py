"""Construct a configuration's server rule, and set what changes from round to round."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.modules.arrays import aliases
from fedbn_flower.clients.modules.head import head_entries
from fedbn_flower.strategies import PseudoGradientStrategy, RuleState
from fedbn_flower.strategies.aggregation.vectors import Layout
from fedbn_flower.strategies.rules.personal import FedPAC
from fedbn_flower.strategies.several_models import SeveralModels

from ..config.named_algorithms import flags
from ..config.run_config import RunConfig
from ..core.errors import RunFailed, not_allowed
from ..core.ground.settings import overridden
from ..core.ground.wire import NUM_EXAMPLES
from ..models.named import models_named
from ..names import STRATEGY, as_user_error
from ..records.checkpoint import Checkpoint
from .checks.expected_metrics import expected_metrics, known_beforehand, most_predictions
from .initial_model import Start, new_model
from .inputs import RunInputs
from .normalisation import Normalisation

WITH_A_STEP = "a class with a server_step(delta, state, round)"
"""What a strategy has to be."""


def make_strategy(inputs: RunInputs) -> PseudoGradientStrategy:
    """Construct the configured rule for the run's model and its local entries.

    Raises
    ------
    UserError
        When the rule has no step, or its constructor raises.
    """
    config, (model, _) = inputs.config, inputs.model()
    rule = STRATEGY.find(config.strategy)
    settings = {name.strip("_"): value for name, value in config.settings_for(rule).items()}
    settings |= known_beforehand(inputs, rule)
    if not overridden(rule, PseudoGradientStrategy, ("server_step", "aggregate_train", "step_train")):
        raise not_allowed("strategy", config.strategy, WITH_A_STEP)
    with as_user_error("strategy", config.strategy):
        strategy = rule(
            fraction_train=config.fraction_train,
            min_train_nodes=1,
            min_evaluate_nodes=1,
            min_available_nodes=1,
            weighted_by_key=NUM_EXAMPLES if config.weighting == "num-examples" else None,
            trainable=inputs.stepped_names,
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
    if isinstance(strategy, SeveralModels):
        strategy.first_model = partial(first_model, inputs)
    if isinstance(strategy, FedPAC):
        strategy.head = head_entries(model) & frozenset(inputs.split.shared)
    strategy.fraction_evaluate = config.share_evaluating  # Flower's constructor would warn of a 0
    return strategy


def first_model(inputs: RunInputs, number: int) -> dict[str, NDArray]:
    """Return the initial entries of the n-th model; the 0-th is the run's, the others use other seeds."""
    config = inputs.config
    seed = int(np.random.SeedSequence([config.seed, number]).generate_state(1)[0]) if number else config.seed
    settings = config.softmax_output, seed, config.device, config.precision
    of_run = Start.of(config), Normalisation.of(config)
    return new_model(models_named(config.model)[0], inputs.model_spec, *settings, *of_run).entries


def state_of(checkpoint: Checkpoint) -> RuleState:
    """Return a rule's state as stored in a checkpoint."""
    return RuleState(
        checkpoint.updates,
        dict(checkpoint.rule),
        dict(checkpoint.draws),
        models=dict(checkpoint.models),
        assigned=dict(checkpoint.assigned),
    )


def _takes_three(step: Callable[..., object]) -> bool:
    """Return whether a ``server_step`` accepts three positional arguments."""
    try:
        signature(step).bind(None, None, None)
    except TypeError:
        return False
    return True


def step_more(strategy: PseudoGradientStrategy, inputs: RunInputs, before: RunInputs) -> None:
    """Have the rule also step the entries that are shared and trained by ``inputs`` but not by ``before``.

    The state of the new parameters starts from its initial values.
    """
    stepped, earlier = inputs.stepped_names, set(before.stepped_names)
    strategy._trainable_names_ = stepped
    shapes = {name: inputs.initial().entries[name] for name in inputs.split.shared}
    layout = Layout(shapes, stepped)
    is_new = {name: np.full(shapes[name].shape, name not in earlier) for name in layout.parameters}
    strategy.rule_state.new = layout.flatten_parameters(is_new) > 0


def set_rates(strategy: PseudoGradientStrategy, config: RunConfig, server_round: int) -> None:
    """Set the rule's ``server-lr`` and ``client-lr`` to those of the round, if scheduled.

    Rules read the attribute in each step, so schedules work for any rule that declares the setting.
    """
    known = flags(type(strategy))
    for key, rate in config.scheduled_rates(server_round).items():
        if key in known:
            setattr(strategy, known[key], rate)


def errors_of_custom_rules(
    config: RunConfig, but: tuple[type[Exception], ...]
) -> AbstractContextManager[None]:
    """Turn exceptions of a user's strategy, except ``but``, into one-line errors."""
    name = config.strategy
    return nullcontext() if name in STRATEGY.names else as_user_error("strategy", name, RunFailed, but)
