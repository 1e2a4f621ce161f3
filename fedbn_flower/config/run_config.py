"""The run configuration: its keys, and the settings of the algorithms that it names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import UserConfig, UserConfigValue
from pydantic import Field as setting
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from fedbn_flower.clients.modules.optimizers import PLAIN as PLAIN_SGD
from fedbn_flower.clients.modules.optimizers import WITHOUT_PLAIN_STEP, check_optimizer, name_of, optimizers

from ..core.errors import UserError, not_allowed, unknown_name
from ..core.ground.settings import allowed
from ..core.process_cache import process_cache
from ..data.images.shift_spec import PLAIN, domains
from ..data.partition.spec import PartitionSpec
from ..data.readers.tables.column_text import split_words
from ..extensions import BUILT_IN
from ..extensions.target import target_of
from ..models import InputSpec
from ..records.columns import TEST, VALIDATION
from . import keys
from .baselines import baseline_keys
from .defaults import defaults_for
from .extension_names import extension_names
from .keys import RUN_KEYS
from .keys.client_selection import UNIFORM, check_selection
from .keys.devices import check_devices
from .keys.paths import with_absolute_paths
from .keys.privacy import AT_CLIENTS, check_privacy
from .named_algorithms import (
    NOT_GIVEN,
    Named,
    Setting,
    check_given,
    check_requirements,
    check_used,
    flags,
    given_by_key,
    named,
    resolve,
    settings_of,
)
from .registry import EXTENSION, MODEL, PROBLEM, models_named
from .schedules import CONSTANT, Schedule, check_schedule
from .splits import with_splits


class RunConfig(
    keys.Folder,
    keys.Runtime,
    keys.Evaluation,
    keys.Privacy,
    keys.Protocol,
    keys.Devices,
    keys.System,
    keys.Start,
    keys.Compression,
    keys.Training,
    keys.Data,
    keys.Run,
):
    """One run; made by `of`."""

    algorithm_settings: tuple[tuple[str, Setting], ...] = setting((), exclude=True)
    """Those of its algorithms by flag, defaults filled in."""

    @classmethod
    def of(cls, values: Mapping[str, UserConfigValue]) -> "RunConfig":
        """Make a checked configuration from kebab-case keys; values may be strings.

        Raises
        ------
        UserError
            For an unknown key, an unknown name, a value that is not allowed, or a setting that nothing uses.
        """
        for key, value in values.items():
            check_given(key, value)
        items = with_absolute_paths(values).items()
        return _resolved(tuple((key, type(value), value) for key, value in sorted(items)))

    @classmethod
    def grid(cls, tables: Sequence[Sequence[Mapping[str, UserConfigValue]]]) -> list["RunConfig"]:
        """Make a configuration for every cell of every table; a setting goes where it is used.

        Raises
        ------
        UserError
            As `of` does; for a setting that no cell of its table uses, or of any table if all have it.
        """
        given = [[given_by_key(cell) for cell in table] for table in tables]
        runs = [[named(cell) for cell in table] for table in given]
        keys = [{key: v for cell in reversed(table) for key, v in cell.items()} for table in given]
        common = {key: value for key, value in keys[0].items() if all(key in table for table in keys)}
        check_used(common, [run for table in runs for run in table])
        for given_keys, table in zip(keys, runs, strict=True):
            check_used({key: value for key, value in given_keys.items() if key not in common}, table)
        return [
            cls.of({key: value for key, value in cell.items() if key in RUN_KEYS or key in _used_by(run)})
            for cells, table in zip(given, runs, strict=True)
            for cell, run in zip(cells, table, strict=True)
        ]

    def to_user_config(self) -> UserConfig:
        """All keys and settings with their values, as Flower's run config carries them."""
        flat = {key: NOT_GIVEN if value is None else value for key, value in self.algorithm_settings}
        return self.model_dump(by_alias=True) | flat

    def settings_for(self, cls: type) -> dict[str, Any]:
        """Return the settings of a class in this run, by attribute."""
        known = {**self.model_dump(by_alias=True), **dict(self.algorithm_settings)} if flags(cls) else {}
        return {name: known[key] for key, name in flags(cls).items() if key in known}

    def messages_for(self, cls: type) -> UserConfig:
        """Return the same by flag, as messages carry it; settings without a value are left out."""
        values = self.settings_for(cls)
        return {key: values[name] for key, name in flags(cls).items() if values.get(name) is not None}

    def scheduled_rates(self, server_round: int) -> dict[str, float]:
        """Return a round's learning rates by key: ``client-lr`` and ``server-lr``, if scheduled."""
        schedules = {"client-lr": self.client_lr_schedule, "server-lr": self.server_lr_schedule}
        base: dict[str, Any] = {**dict(self.algorithm_settings), "client-lr": self.client_lr}
        return {
            key: base[key] * Schedule.parse(f"{key}-schedule", text).factor(server_round, self.rounds)
            for key, text in schedules.items()
            if text != CONSTANT
        }

    def at_round(self, server_round: int) -> "RunConfig":
        """Return the configuration of a round: from ``unfreeze-at`` on, one that freezes nothing."""
        if not 0 < self.unfreeze_at <= server_round:
            return self
        return self.model_copy(update={"freeze": "", "train": "", "unfreeze_at": 0})

    @property
    def num_training(self) -> int:
        """The number of clients that can train: all that are not held out."""
        return self.num_clients - self.holdout_clients

    @property
    def clients_a_round(self) -> int:
        """The number of clients that train in a round; 1 with ``reference pooled``; of a buffer its size."""
        if self.asynchronous:
            return self.asynchronous.size
        if self.reference == "pooled":
            return 1
        return max(1, int(self.num_training * self.fraction_train + 1e-9))

    @property
    def may_end_early(self) -> bool:
        """Whether the metrics of a round can end the run."""
        return self.patience > 0 or self.stop_at_target

    @property
    def clients_report(self) -> bool:
        """Whether clients send metrics.

        Under the notions that protect them from the server they do if ``dp-metrics`` pays for it.
        """
        return self.dp not in AT_CLIENTS or self.dp_metrics > 0

    @property
    def share_evaluating(self) -> float:
        """The share of the clients that are asked to evaluate: ``fraction-evaluate``, or 0."""
        return self.fraction_evaluate if self.clients_report else 0.0

    @property
    def clients_evaluate(self) -> bool:
        """Whether clients evaluate on held-out examples."""
        return self.clients_report and (self.eval_model == "local" or self.fraction_evaluate > 0)

    def held_out_splits(self, final: bool) -> str:
        """The splits a round evaluates on: the test set, unless a validation share stands in for it."""
        if not self.val_fraction:
            return TEST
        return f"{VALIDATION},{TEST}" if final and self.final_test else VALIDATION

    @property
    def target_value(self) -> tuple[str, float] | None:
        """The metric of the target and its value; None without a target."""
        try:
            return target_of(self.target)
        except ValueError:
            raise not_allowed("target", self.target, allowed(RUN_KEYS["target"])) from None

    @property
    def usual_choices(self) -> dict[str, str]:
        """``model`` and ``partition`` where none is chosen: as the dataset's name, labels and problem say."""
        problem = None if self.problem == NOT_GIVEN else PROBLEM.find(self.problem)
        several = "=" not in self.label_column and len(split_words(self.label_column)) > 1
        return defaults_for(self.dataset, several or (problem is not None and problem.learns == "numbers"))

    @property
    def partitioning(self) -> PartitionSpec:
        return PartitionSpec.parse(self.partition)


@process_cache(maxsize=64)  # a worker sees the same configuration with every message
def _resolved(items: tuple[tuple[str, type, Any], ...]) -> RunConfig:
    """``items`` have the type of each value, since True == 1 == 1.0."""
    config = _checked({key: value for key, _, value in items})
    return config if config.reference == "none" else _checked(baseline_keys(config.to_user_config()))


def _checked(values: Mapping[str, Any]) -> RunConfig:
    given = given_by_key(values)
    algorithms = named(given)
    check_used(given, [algorithms])
    of_run = {key: value for key, value in given.items() if key in RUN_KEYS}
    try:
        config = RunConfig.model_validate(of_run)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise not_allowed(key, of_run[key], allowed(RUN_KEYS[key])) from None
    auto = [key for key in ("model", "partition") if getattr(config, key) == NOT_GIVEN]
    config = config.model_copy(update={key: config.usual_choices[key] for key in auto})
    if config.weighting == NOT_GIVEN:
        alike = config.dp in ("client", "local") or config.selection != UNIFORM or config.asynchronous
        config = config.model_copy(update={"weighting": "uniform" if alike else "num-examples"})
    _ = [MODEL.find(name) for name in models_named(config.model)]
    config = with_splits(config)
    if config.problem != NOT_GIVEN:
        PROBLEM.find(config.problem)
    check_selection(config.selection, config.dataset)
    resolved = resolve(algorithms, given | config.model_dump(by_alias=True))
    config = config.model_copy(update={"algorithm_settings": tuple(resolved.items())})
    check_requirements(algorithms, config.to_user_config())
    InputSpec.parse(config.dataset)
    domains(config.feature_shift)
    _check_optimizer(config)
    config.check_codec()
    _check_schedules(config, settings_of(algorithms[0].cls))
    _check_bounds(config, resolved)
    _check_trim(resolved, settings_of(algorithms[0].cls))
    config.partitioning.check_clients(config.num_clients)
    if config.reference == "pooled" and config.feature_shift != PLAIN:
        wanted = f"{PLAIN!r} with reference 'pooled': the examples would be in several domains"
        raise not_allowed("feature-shift", config.feature_shift, wanted)
    if not (config.final_test or config.val_fraction):
        raise not_allowed("final-test", False, "true without val-fraction: nothing else is held out")
    if config.num_training < 1:
        most = f"at most {config.num_clients - 1}: one client at least is to train (num-clients)"
        raise not_allowed("holdout-clients", config.holdout_clients, most)
    _ = config.target_value
    values_by_key = config.to_user_config()
    own = map(EXTENSION.find, extension_names(config.extension))
    for extension in (*BUILT_IN, *own):
        for conflict in extension.conflicts(values_by_key):
            raise not_allowed(conflict.key, conflict.value, conflict.allowed)
    if config.fraction_train == 0:
        raise not_allowed("fraction-train", 0.0, "more than 0: no client would ever train")
    _check_start(config)
    check_privacy(config)
    check_devices(config)
    return config


def _used_by(algorithms: Iterable[Named]) -> set[str]:
    return {key for algorithm in algorithms for key in settings_of(algorithm.cls)}


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


def _check_start(config: RunConfig) -> None:
    """Refuse keys of pretrained and partly trained models that do not go together."""
    if config.init and len(models_named(config.model)) > 1:
        raise not_allowed("init", config.init, f"none with several models ({config.model})")
    if config.unfreeze_at:
        if not (config.freeze or config.train):
            raise not_allowed("unfreeze-at", config.unfreeze_at, "0 without freeze or train")
        if not 2 <= config.unfreeze_at <= config.rounds:
            raise not_allowed("unfreeze-at", config.unfreeze_at, f"0, or a round from 2 to {config.rounds}")
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
    if (bound := settings.get("max-num-examples")) and config.weighting == "uniform":
        raise not_allowed("max-num-examples", bound, "0 with weighting 'uniform'")


def _check_trim(settings: Mapping[str, Any], declared: Mapping[str, FieldInfo]) -> None:
    """Refuse a share to leave out where nothing is left out."""
    mean, trim = settings.get("mean", "trimmed"), settings.get("trim")
    if mean != "trimmed" and "trim" in declared and trim != declared["trim"].default:
        raise UserError(f"trim: {trim} is not used by mean {mean!r}; it is a setting of mean 'trimmed'")
