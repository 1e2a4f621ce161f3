"""Find given keys that nothing in a run reads, as far as the configuration determines this.

Unknown keys are refused: former ones, settings of other algorithms, misspelt ones. Keys whose use depends on
the data are in `job.checks.unused_keys`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from flwr.app import UserConfigValue

from fedbn_flower.clients.modules.optimizers import unused_keys as unused_by_optimizer

from ..core.errors import UserError
from ..core.text import hint
from ..names import CLIENT, OBJECTIVE, SELECTION
from .data_request import implied_by_splits, usual_clients
from .gone import refuse_gone
from .keys import RUN_KEYS
from .named_algorithms import EXTENSION, NOT_GIVEN, REGISTRIES, Named, named, objective_of, settings_of
from .run_config import RunConfig


def check_used(given: Mapping[str, Any], runs: Sequence[Iterable[Named]]) -> None:
    """Refuse keys that no run knows.

    Raises
    ------
    UserError
        For the first one; the message names the key that replaced it, the algorithms that have it, or the
        most similar key.
    """
    algorithms = list(dict.fromkeys(algorithm for run in runs for algorithm in run))
    used = {key for algorithm in algorithms for key in settings_of(algorithm.cls)}
    for key, value in given.items():
        if key in used or key in RUN_KEYS:
            continue
        refuse_gone(key, [value])
        if users := built_in_users(key):
            *others, last = (str(a) for r in REGISTRIES for a in algorithms if a.kind == r.key)
            named = f"{', '.join(others)} or {last}"
            raise UserError(f"{key}: {value} is not used by {named}; it is a setting of {', '.join(users)}")
        near = hint(key, [*RUN_KEYS, *sorted({*used, *built_in_settings()})])
        raise UserError(f"configuration: unknown name {key!r}{near}; see --help")


def built_in_users(key: str) -> list[str]:
    """The built-in algorithms that have this setting."""
    kinds = (*REGISTRIES, EXTENSION)
    users = {name for r in kinds for name, cls in r.names.items() if key in settings_of(cls)}
    return sorted(users)


def built_in_settings() -> list[str]:
    """The settings of all built-in algorithms, in their order."""
    kinds = (*REGISTRIES, EXTENSION)
    return list(dict.fromkeys(k for r in kinds for cls in r.names.values() for k in settings_of(cls)))


Run = TypeVar("Run")


class Caller(NamedTuple):
    """Who runs a federation, and so reads keys itself."""

    simulates: bool = True
    """Whether clients are simulated; otherwise they are Flower's nodes."""
    searches: bool = False
    """Whether it is a trial of a search."""


SIMULATION, SEARCH, FLOWER = Caller(), Caller(searches=True), Caller(simulates=False)


def runs_here(config: RunConfig, caller: Caller) -> bool:
    """Whether all clients are simulated in this process; see `runtime.pools.pool_for`."""
    moves = config.backend == "auto" and (config.ray_address or config.device == "cpu")
    return caller.simulates and not (config.backend == "ray" or moves)


def _needs_no_workers(config: RunConfig, caller: Caller) -> bool:
    """Whether no workers are needed, not even for concurrent runs of a sweep; see `sweeps.processes`."""
    return runs_here(config, caller) and (config.backend == "inline" or config.device == "cpu")


def _chooses_nobody(config: RunConfig, _: Caller) -> bool:
    """Whether a built-in selection always selects all clients, and does not affect ``weighting``."""
    all_train = config.clients_a_round == config.num_training
    return (
        all_train and config.weighting != "uniform" and config.selection.partition(":")[0] in SELECTION.names
    )


def _evaluates_trained_models(config: RunConfig, _: Caller) -> bool:
    """Whether clients evaluate after training; then ``fraction-evaluate`` has an effect only if it is 0."""
    return config.eval_model == "local" and config.fraction_evaluate > 0


def _fixes_nothing(config: RunConfig, _: Caller) -> bool:
    return int(dict(config.algorithm_settings).get("fix-from") or 0) > config.rounds


def _zero(setting: str) -> Callable[[RunConfig, Caller], bool]:
    return lambda config, _: dict(config.algorithm_settings).get(setting) == 0


def _lacks(key: str) -> Callable[[RunConfig, Caller], bool]:
    return lambda config, _: key in unused_by_optimizer(config.client_optimizer)


Unread = Mapping[tuple[str, str], Callable[[Run, Caller], bool]]
"""Conditions on a run and its caller under which nothing reads keys, by key names and by the reason."""

UNREAD: Unread[RunConfig] = {
    ("workers", "clients run in this process"): _needs_no_workers,
    ("round-timeout", "clients run in this process"): runs_here,
    ("ray-address", "backend is 'inline'"): lambda c, by: by.simulates and c.backend == "inline",
    ("node-timeout", "simulated clients are there at once"): lambda _, by: by.simulates,
    ("evaluate-with-training", "simulated clients are asked at no cost"): lambda _, by: by.simulates,
    ("memory-name keep-memories", "only SuperNodes keep memories"): lambda _, by: by.simulates,
    ("backend workers ray-address verbose", "Flower runs the clients"): lambda _, by: not by.simulates,
    (
        "subgroups",
        "cases stay at the nodes, and so do sums of few of them; a node's own predictions have the column",
    ): lambda _, by: not by.simulates,
    ("fast", "Flower runs the clients"): lambda c, by: (
        not by.simulates and c.reference != "pooled"
    ),  # a search sets it itself
    ("client-momentum", "client-optimizer {client_optimizer!r} has none"): _lacks("client-momentum"),
    ("weight-decay", "client-optimizer {client_optimizer!r} has none"): _lacks("weight-decay"),
    ("drop-stragglers", "stragglers is 0"): lambda c, _: not c.stragglers,
    ("selection", "all clients train"): _chooses_nobody,
    ("fraction-evaluate", "clients send no metrics"): lambda c, _: c.fraction_evaluate > c.share_evaluating,
    ("fraction-evaluate", "eval-model is 'local'"): _evaluates_trained_models,
    ("dp-metrics", "fraction-evaluate is 0"): lambda c, _: not c.clients_evaluate,
    (
        "evaluate-with-training",
        "no client evaluates the model that it receives",
    ): lambda c, _: c.eval_model == "local" or not c.clients_evaluate,
    (
        "decide-by",
        "without patience, best, stop-at-target and a search it decides nothing",
    ): lambda c, by: not (c.tests_each_round or by.searches),
    ("fix-from", "there are only {rounds} rounds"): _fixes_nothing,
    ("moon-temperature", "mu is 0"): _zero("mu"),
    ("ntd-temperature", "ntd-beta is 0"): _zero("ntd-beta"),
}
"""Conditions under which nothing reads a key and no error says so (most keys that need another one are
refused without it), by key names, separated by blanks, and by the reason, with the run's keys in braces.
"""

SET_ON_RESUME = frozenset({"decide-by", "eval-data", "frozen-bn"})
"""Keys that a resumed run or search may take from its folder without being given."""


def given_keys(config: RunConfig, caller: Caller) -> dict[str, UserConfigValue]:
    """Return the keys and settings of a run that are not their defaults, with their values."""
    values = config.to_user_config()
    algorithms = named(values)
    settings = {key: field for one in algorithms for key, field in settings_of(one.cls).items()}
    defaults = {key: field.default for key, field in {**settings, **RUN_KEYS}.items()}
    defaults = {key: NOT_GIVEN if value is None else value for key, value in defaults.items()}
    defaults |= {**config.usual_choices, **implied_by_splits(config)}
    defaults |= {"num-clients": usual_clients(config), OBJECTIVE.key: objective_of(algorithms[0].cls)}
    if norm := CLIENT.find(config.client).norm:
        defaults["norm"] = norm
    resumed = SET_ON_RESUME if config.resume or caller.searches else frozenset()
    return {key: v for key, v in values.items() if v != defaults.get(key) and key not in resumed}


def told(config: RunConfig, caller: Caller, unused: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the given keys among those that nothing reads, each with the reason.

    Parameters
    ----------
    config : RunConfig
        The run's.
    caller : Caller
        Who runs it.
    unused : Iterable[tuple[str, str]]
        Names separated by blanks, and why nothing reads them; the first of several reasons is reported.
    """
    values = config.model_dump()
    why: dict[str, str] = {}
    for keys, words in unused:
        for key in keys.split():
            why.setdefault(key, words.format(**values))
    return {key: why[key] for key in given_keys(config, caller) if key in why}


def unread(conditions: Unread[Run], run: Run, caller: Caller) -> list[tuple[str, str]]:
    """Return the keys of the conditions that hold, and why, as arguments of `told`."""
    return [keys for keys, holds in conditions.items() if holds(run, caller)]


def unused_by_config(config: RunConfig, caller: Caller) -> list[tuple[str, str]]:
    """Return the keys that nothing reads, whatever the data, and why, as arguments of `told`."""
    return unread(UNREAD, config, caller)
