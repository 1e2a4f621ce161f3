"""Which values of a run's keys do not go together, whatever the data are."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from fedbn_flower.clients.modules.optimizers import PLAIN as PLAIN_SGD
from fedbn_flower.clients.modules.optimizers import WITHOUT_PLAIN_STEP, check_optimizer, name_of, optimizers
from fedbn_flower.strategies.aggregation.named_means import named_mean

from ..core.errors import Conflict, UserError, not_allowed, unknown_name
from ..data.images.augment import check_augment
from ..data.images.shift_spec import PLAIN, domains
from ..models import InputSpec
from ..names import NORM, made, models_named, name_now
from .extension_names import EXTENSION, extension_classes
from .named_algorithms import REGISTRIES, Named, settings_of
from .run_config import RunConfig
from .schedules import CONSTANT, check_schedule


def check_conflicts(config: RunConfig, algorithms: Sequence[Named]) -> None:
    """Refuse values that do not go together.

    Parameters
    ----------
    config : RunConfig
        With the settings of its algorithms.
    algorithms : Sequence[Named]
        Those that it names.

    Raises
    ------
    UserError
        For the first one.
    """
    values, of_strategy = config.to_user_config(), settings_of(algorithms[0].cls)
    check_requirements(algorithms, values)
    InputSpec.parse(config.dataset)
    domains(config.feature_shift)
    check_augment(config.augment, bool(config.normalize))
    made(NORM, config.norm)
    _check_optimizer(config)
    _check_schedules(config, of_strategy)
    _check_bounds(config, dict(config.algorithm_settings))
    _check_trim(dict(config.algorithm_settings), of_strategy)
    _check_pulls(config, algorithms)
    _check_envelope(config, dict(config.algorithm_settings))
    config.partitioning.check_clients(config.num_clients)
    _check_data(config)
    _check_participation(config)
    _check_start(config)
    own = [EXTENSION.find(one.name) for one in algorithms if one.kind == EXTENSION.key]
    for extension in extension_classes(values).values():
        for conflict in extension.conflicts(values):
            raise conflict.error
    for conflict in _former_hooks(config, own):
        raise conflict.error
    if config.dp != "none" and not all(extension.published_only for extension in own):
        why = f"since clients' metrics could decide what is published, with dp {config.dp!r}"
        raise not_allowed(EXTENSION.key, config.extension, f"one that declares published_only = True, {why}")


FORMER_HOOKS = {
    "notices": "set self.notices in __init__",
    "choose": "set moment.rule.node_choice in prepare",
    "asked": "replace moment.exchange.carry in prepare",
    "answers": "replace moment.exchange.train in prepare",
    "keeps": "return the result with another kept from after_round",
    "header": "set self.header in __init__",
    "columns_of_clients": "return numbers by client from columns",
    "check_end": "raise in on_end",
}
"""Methods of extensions that nothing calls any more, and what to do in their place."""


def _former_hooks(config: RunConfig, own: Iterable[type]) -> Iterator[Conflict]:
    """Yield the extensions that an earlier version would have called more of."""
    for extension in own:
        for hook, instead in FORMER_HOOKS.items():
            if callable(getattr(extension, hook, None)):
                allowed = f"one without {extension.__name__}.{hook}, which is not called any more: {instead}"
                yield Conflict(EXTENSION.key, config.extension, allowed)


def check_requirements(algorithms: Sequence[Named], values: Mapping[str, Any]) -> None:
    """Refuse a configuration that an algorithm does not go with.

    Raises
    ------
    UserError
        For the first key that is not what an algorithm requires.
    """
    partners = {algorithm.kind: algorithm for algorithm in algorithms}
    for algorithm in algorithms:
        required: Mapping[str, Collection[object]] = getattr(algorithm.cls, "requires", {})
        for key, wanted in required.items():
            if key not in values:
                raise UserError(f"{algorithm}: it requires {key!r}, which is no key of this run")
            value = values[key]
            if key in partners:
                met = any(_has_name(partners[key], name_now(key, str(name))) for name in wanted)
            else:
                met = value in wanted
            if not met:
                words = " or ".join(sorted(map(repr, wanted)))
                raise not_allowed(key, value, f"{words}, which goes with {algorithm}")


def _has_name(algorithm: Named, name: str) -> bool:
    """By its name as given, or its class's; one from a file also by those of the classes it extends; several
    joined by what one of them is called."""
    if algorithm.members:
        return any(_has_name(one, name) for one in algorithm.members)
    if name in (algorithm.name, algorithm.cls.__name__) or algorithm.name.endswith(f"/{name}"):
        return True
    if algorithm.built_in:
        return False
    registered = next(r.names for r in REGISTRIES if r.key == algorithm.kind)
    bases = algorithm.cls.__mro__
    return name in {base.__name__ for base in bases} or registered.get(name) in bases


def _check_optimizer(config: RunConfig) -> None:
    """Refuse an optimiser that there is not, that needs more than a plain step, or that does not take its
    arguments."""
    text, name = config.client_optimizer, name_of(config.client_optimizer)
    if text != PLAIN_SGD and name not in optimizers():
        names = optimizers().keys() - WITHOUT_PLAIN_STEP.keys()
        raise unknown_name("client-optimizer", name, names, "one with arguments, NAME:ARGUMENT=VALUE,...")
    try:
        check_optimizer(text, config.client_lr, config.client_momentum, config.weight_decay)
    except ValueError as error:
        raise not_allowed("client-optimizer", text, str(error)) from None


def _check_data(config: RunConfig) -> None:
    """Refuse keys of the data that do not go together."""
    if config.reference == "pooled" and config.feature_shift != PLAIN:
        wanted = f"{PLAIN!r} with reference 'pooled': the examples would be in several domains"
        raise not_allowed("feature-shift", config.feature_shift, wanted)
    if not (config.final_test or config.val_fraction):
        raise not_allowed("final-test", False, "true without val-fraction: nothing else is held out")


def _check_participation(config: RunConfig) -> None:
    """Refuse a run in which no answer would ever count."""
    if config.fraction_train == 0:
        raise not_allowed("fraction-train", 0.0, "more than 0: no client would ever train")
    if config.drop_stragglers and config.stragglers == 1:
        raise not_allowed("stragglers", config.stragglers, "less than 1 with drop-stragglers")


def _check_start(config: RunConfig) -> None:
    """Refuse keys of pretrained and partly trained models that do not go together."""
    if config.init and len(models_named(config.model)) > 1:
        raise not_allowed("init", config.init, f"none with several models ({config.model})")
    if config.init_strict and not config.init:
        raise not_allowed("init-strict", True, "false without init: there are no weights to fit")


def _check_schedules(config: RunConfig, of_strategy: Iterable[str]) -> None:
    """Refuse schedules that cannot be, and one of a rate that there is not."""
    check_schedule("client-lr-schedule", config.client_lr_schedule, config.client_lr, config.rounds)
    text, rate = config.server_lr_schedule, dict(config.algorithm_settings).get("server-lr")
    has_rate = "server-lr" in of_strategy and isinstance(rate, int | float)
    if text != CONSTANT and not has_rate:
        wanted = f"{CONSTANT!r} with strategy {config.strategy!r}, which has no server-lr"
        raise not_allowed("server-lr-schedule", text, wanted)
    check_schedule("server-lr-schedule", text, float(rate or 1) if has_rate else 1.0, config.rounds)


def _check_bounds(config: RunConfig, settings: Mapping[str, Any]) -> None:
    """Refuse bounds that no round could meet, or that would bound nothing."""
    sampled = config.clients_a_round
    if (wanted := settings.get("min-replies", 1)) > sampled:
        of = "num-clients less holdout-clients," if config.holdout_clients else "num-clients"
        most = f"at most {sampled}, the clients that train in a round ({of} times fraction-train)"
        raise not_allowed("min-replies", wanted, most)
    least = named_mean(mean := settings.get("mean", "weighted")).least
    if config.reference == "none" and least > sampled:  # a reference has no such mean
        most = f"one of at most {sampled} answers, the clients that train in a round; it needs {least}"
        raise not_allowed("mean", mean, most)
    if (bound := settings.get("max-num-examples")) and config.weighting == "uniform":
        raise not_allowed("max-num-examples", bound, "0 with weighting 'uniform'")


def _check_pulls(config: RunConfig, algorithms: Sequence[Named]) -> None:
    """Refuse weights of proximal terms with which the term's own steps lead ever farther from x.

    Steps of the rate eta with momentum rho multiply ``w - x`` by less than 1 in the long run if
    ``eta c < 2 (1 + rho)``. In a round of one step w is x, and the term has no gradient.
    """
    if name_of(config.client_optimizer) != PLAIN_SGD or (config.local_epochs == 1 and not config.batch_size):
        return
    bound, settings = 2 * (1 + config.client_momentum), dict(config.algorithm_settings)
    words = "2 (1 + client-momentum)" if config.client_momentum else "2"
    for one in algorithms:
        flag, power = getattr(one.cls, "pulled_by", ("", 1))
        value = settings.get(flag)
        if isinstance(value, float) and value and config.client_lr * value**power >= bound:
            limit = bound / config.client_lr
            allowed = f"less than {limit:g}, {words} over client-lr"
            if power < 0:
                allowed = f"more than {1 / limit:g}, client-lr over {words}"
            raise not_allowed(flag, value, f"{allowed}: steps would lead ever farther from the shared model")


def _check_envelope(config: RunConfig, settings: Mapping[str, Any]) -> None:
    """Refuse steps of pFedMe that would throw its models farther apart than they were."""
    if (weight := settings.get("pfedme-lambda")) is None:
        return
    if config.client_lr * weight >= 2:
        most = f"less than {2 / config.client_lr:g}, 2 over client-lr: the shared model would diverge"
        raise not_allowed("pfedme-lambda", weight, most)
    if name_of(config.client_optimizer) == PLAIN_SGD and settings["pfedme-lr"] * weight >= 2:
        most = f"less than {2 / weight:g}, 2 over pfedme-lambda: the personal model would diverge"
        raise not_allowed("pfedme-lr", settings["pfedme-lr"], most)


def _check_trim(settings: Mapping[str, Any], declared: Mapping[str, FieldInfo]) -> None:
    """Refuse a share to leave out where nothing is left out."""
    mean, trim = settings.get("mean", "trimmed"), settings.get("trim")
    if mean != "trimmed" and "trim" in declared and trim != declared["trim"].default:
        raise UserError(f"trim: {trim} is not used by mean {mean!r}; it is a setting of mean 'trimmed'")
