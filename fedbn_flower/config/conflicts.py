"""Values of a run's keys that are incompatible, whatever the data."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from fedbn_flower.clients.modules.optimizers import PLAIN as PLAIN_SGD
from fedbn_flower.clients.modules.optimizers import WITHOUT_PLAIN_STEP, check_optimizer, name_of, optimizers
from fedbn_flower.strategies.aggregation.named_means import named_mean

from ..core.errors import Conflict, Unused, UserError, refuse, unknown_name
from ..data.images.augment import parts_of
from ..data.images.shift_spec import PLAIN
from ..extensions import Extension
from ..models.named import NORM, models_named
from ..names import made, name_now
from .data_request import of_splits
from .named_algorithms import EXTENSION, REGISTRIES, Named, extension_classes, settings_of
from .run_config import RunConfig
from .schedules import CONSTANT, Schedule


def check_conflicts(config: RunConfig, algorithms: Sequence[Named]) -> None:
    """Refuse incompatible values.

    Parameters
    ----------
    config : RunConfig
        The configuration, including its algorithms' settings.
    algorithms : Sequence[Named]
        The algorithms that it names.

    Raises
    ------
    UserError
        For the first conflict.
    """
    refuse(_conflicts(config, algorithms))


def _conflicts(config: RunConfig, algorithms: Sequence[Named]) -> Iterator[Conflict]:
    """Yield the conflicts, in order of report; raise for an invalid value."""
    values, of_strategy = config.to_user_config(), settings_of(algorithms[0].cls)
    settings = dict(config.algorithm_settings)
    yield from of_requirements(algorithms, values)
    yield from of_splits(config)
    made(NORM, config.norm)
    yield from _of_optimizer(config)
    yield from _of_schedules(config, of_strategy)
    yield from _of_bounds(config, settings)
    yield from _of_trim(settings, of_strategy)
    yield from _of_pulls(config, algorithms)
    yield from _of_envelope(config, settings)
    config.partitioning.check_clients(config.num_clients)
    yield from _of_data(config)
    yield from _of_participation(config)
    yield from _of_start(config)
    for extension in extension_classes(values).values():
        yield from extension.conflicts(values)
    own = [EXTENSION.find(one.name) for one in algorithms if one.kind == EXTENSION.key]
    yield from _of_own_extensions(config, own)


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
"""Methods of extensions that are no longer called, and their replacements."""


def _of_own_extensions(config: RunConfig, own: Iterable[type[Extension]]) -> Iterator[Conflict]:
    """Yield extensions with methods that are no longer called, and those that could leak data with ``dp``."""
    for extension in own:
        for hook, instead in FORMER_HOOKS.items():
            if callable(getattr(extension, hook, None)):
                allowed = f"one without {extension.__name__}.{hook}, which is not called any more: {instead}"
                yield Conflict(EXTENSION.key, config.extension, allowed)
        if config.dp != "none" and not extension.published_only:
            why = f"since clients' metrics could decide what is published, with dp {config.dp!r}"
            wanted = f"one that declares published_only = True, {why}"
            yield Conflict(EXTENSION.key, config.extension, wanted)


def of_requirements(algorithms: Sequence[Named], values: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield each key that is not what an algorithm requires.

    Raises
    ------
    UserError
        For a required key that the run does not have.
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
                yield Conflict(key, value, f"{words}, which goes with {algorithm}")


def _has_name(algorithm: Named, name: str) -> bool:
    """Whether a name is the given one or the class's; a class from a file also goes by the names of its
    bases, and a union by the name of any part."""
    if algorithm.members:
        return any(_has_name(one, name) for one in algorithm.members)
    if name in (algorithm.name, algorithm.cls.__name__) or algorithm.name.endswith(f"/{name}"):
        return True
    if algorithm.built_in:
        return False
    registered = next(r.names for r in REGISTRIES if r.key == algorithm.kind)
    bases = algorithm.cls.__mro__
    return name in {base.__name__ for base in bases} or registered.get(name) in bases


def _of_optimizer(config: RunConfig) -> Iterator[Conflict]:
    """Yield an optimiser that does not exist, needs more than a plain step, or does not take its
    arguments."""
    text, name = config.client_optimizer, name_of(config.client_optimizer)
    if text != PLAIN_SGD and name not in optimizers():
        names = optimizers().keys() - WITHOUT_PLAIN_STEP.keys()
        raise unknown_name("client-optimizer", name, names, "one with arguments, NAME:ARGUMENT=VALUE,...")
    try:
        check_optimizer(text, config.client_lr, config.client_momentum, config.weight_decay)
    except ValueError as error:
        yield Conflict("client-optimizer", text, str(error))


def _of_data(config: RunConfig) -> Iterator[Conflict]:
    """Yield incompatible keys of the data."""
    if config.reference == "pooled" and config.feature_shift != PLAIN:
        wanted = f"{PLAIN!r} with reference 'pooled': the examples would be in several domains"
        yield Conflict("feature-shift", config.feature_shift, wanted)
    of_torchvision = [one for one in parts_of(config.augment) if one.startswith("torchvision:")]
    if config.normalize and of_torchvision:
        wanted = f"false with augment {of_torchvision[0]!r}, which takes intensities in [0, 1]"
        yield Conflict("normalize", config.normalize, wanted)
    if not (config.final_test or config.val_fraction):
        yield Conflict("final-test", False, "true without val-fraction: nothing else is held out")


def _of_participation(config: RunConfig) -> Iterator[Conflict]:
    """Yield settings under which no answer would ever count."""
    if config.fraction_train == 0:
        yield Conflict("fraction-train", 0.0, "more than 0: no client would ever train")
    if config.drop_stragglers and config.stragglers == 1:
        yield Conflict("stragglers", config.stragglers, "less than 1 with drop-stragglers")


def _of_start(config: RunConfig) -> Iterator[Conflict]:
    """Yield incompatible keys of pretrained and partly trained models."""
    if config.init and len(models_named(config.model)) > 1:
        yield Conflict("init", config.init, f"none with several models ({config.model})")
    if config.init_strict and not config.init:
        yield Conflict("init-strict", True, "false without init: there are no weights to fit")


def _of_schedules(config: RunConfig, of_strategy: Iterable[str]) -> Iterator[Conflict]:
    """Yield schedules that do not fit the rounds, and one for a rate that the rule does not have."""
    text, rate = config.server_lr_schedule, dict(config.algorithm_settings).get("server-lr")
    has_rate = "server-lr" in of_strategy and isinstance(rate, int | float)
    if text != CONSTANT and not has_rate:
        wanted = f"{CONSTANT!r} with strategy {config.strategy!r}, which has no server-lr"
        yield Conflict("server-lr-schedule", text, wanted)
    of_client = ("client-lr-schedule", config.client_lr_schedule, config.client_lr)
    of_server = ("server-lr-schedule", text, float(rate or 1) if has_rate else 1.0)
    for key, value, base in (of_client, of_server):
        if wanted := Schedule.parse(value).misfit(base, config.rounds):
            yield Conflict(key, value, wanted)


def _of_bounds(config: RunConfig, settings: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield bounds that no round could satisfy, or that have no effect."""
    sampled = config.clients_a_round
    if (wanted := settings.get("min-replies", 1)) > sampled:
        of = "num-clients less holdout-clients," if config.holdout_clients else "num-clients"
        most = f"at most {sampled}, the clients that train in a round ({of} times fraction-train)"
        yield Conflict("min-replies", wanted, most)
    least = named_mean(mean := settings.get("mean", "weighted")).least
    if config.reference == "none" and least > sampled:  # a reference run takes no such mean
        most = f"one of at most {sampled} answers, the clients that train in a round; it needs {least}"
        yield Conflict("mean", mean, most)
    if (bound := settings.get("max-num-examples")) and config.weighting == "uniform":
        yield Conflict("max-num-examples", bound, "0 with weighting 'uniform'")


def _of_pulls(config: RunConfig, algorithms: Sequence[Named]) -> Iterator[Conflict]:
    """Yield weights of proximal terms for which gradient steps on the term alone diverge from x.

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
            yield Conflict(flag, value, f"{allowed}: steps would lead ever farther from the shared model")


def _of_envelope(config: RunConfig, settings: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield steps of pFedMe that would increase the distance between its models."""
    if (weight := settings.get("pfedme-lambda")) is None:
        return
    if config.client_lr * weight >= 2:
        most = f"less than {2 / config.client_lr:g}, 2 over client-lr: the shared model would diverge"
        yield Conflict("pfedme-lambda", weight, most)
    if name_of(config.client_optimizer) == PLAIN_SGD and settings["pfedme-lr"] * weight >= 2:
        most = f"less than {2 / weight:g}, 2 over pfedme-lambda: the personal model would diverge"
        yield Conflict("pfedme-lr", settings["pfedme-lr"], most)


def _of_trim(settings: Mapping[str, Any], declared: Mapping[str, FieldInfo]) -> Iterator[Conflict]:
    """Yield a ``trim`` for a mean that does not trim."""
    mean, trim = settings.get("mean", "trimmed"), settings.get("trim")
    if mean != "trimmed" and "trim" in declared and trim != declared["trim"].default:
        yield Unused("trim", trim, f"by mean {mean!r}; it is a setting of mean 'trimmed'")
