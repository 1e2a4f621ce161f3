"""Make checked configurations from values by key.

Among them are reference runs, with which a federation is compared: each is one configuration, whichever run
it is given with.
"""

import logging
from collections.abc import Mapping
from typing import Any

from flwr.app import Context, UserConfigValue
from pydantic import ValidationError

from .. import annexes
from ..core.errors import UserError, not_allowed
from ..core.ground.settings import allowed
from ..core.process_cache import process_cache
from ..extensions import KEY_GROUPS
from ..models.named import MODEL, models_named
from ..names import CLIENT, LOSS, OBJECTIVE, PROBLEM
from ..privacy.floors import Floors
from .conflicts import check_conflicts
from .data_request import USUAL_CLIENTS, usual_clients, with_splits
from .given import ABSOLUTE, given_by_key
from .keys import RUN_KEYS, flag_of
from .named_algorithms import NOT_GIVEN, check_used, named, resolve, settings_of
from .run_config import RunConfig

LOGGER = logging.getLogger("flwr.fedbn")
WITHOUT_MEANING = (
    *("fine-tune", "adapt-bn", "weighting", "fraction-train", "fraction-evaluate"),
    *("stragglers", "drop-stragglers", "dropout", "availability", "server-lr-schedule"),
    *("selection", "compress", "error-feedback", "compress-down"),
    *(flag_of(name) for keys in KEY_GROUPS if not keys.of_references for name in keys.model_fields),
)
"""Keys that a reference run has at their defaults: all clients take part in all rounds."""

ALGORITHMS = {
    "alone": {"strategy": "fedavg", "client": "alone", "objective": "plain"},
    "pooled": {
        **{"strategy": "fedavg", "client": "shared", "objective": "plain"},
        **{"eval-model": "aggregated", "fast": "off"},
    },
}


def baseline_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a reference run, from all keys and settings of a run that it is compared with.

    - ``alone``: every client trains alone on its data, in every round; nothing is shared.
    - ``pooled``: one model is trained by plain SGD, or the clients' optimiser, on all clients' training data
      in one place. Partition 0 does it; every client evaluates the model, as it does in the other runs.

    Both make as many passes over their data as the clients of the other runs, ``rounds`` times
    ``local-epochs``, and reset the optimiser in every round, as clients do. Both are without privacy; a log
    line warns if the other runs have it.
    """
    if values.get("dp", "none") != "none":
        LOGGER.warning(
            "reference: %r has no dp, so it is itself a release: nothing bounds what its model, or "
            "a metric of "
            "it, tells of the data that dp=%s protects",
            values["reference"],
            values["dp"],
        )
    loss: type = LOSS.find(str(values["loss"]))
    kept = RUN_KEYS.keys() | settings_of(loss).keys()
    of_client = ("norm",) if values["norm"] == CLIENT.find(str(values["client"])).norm else ()
    defaults = {key: RUN_KEYS[key].default for key in (*WITHOUT_MEANING, *of_client)}
    known = {key: v for key, v in values.items() if key in RUN_KEYS or (key in kept and v != NOT_GIVEN)}
    return known | defaults | ALGORITHMS[values["reference"]]


NUM_CLIENTS = "num-clients"
DEFAULTS = {key: field.default for key, field in RUN_KEYS.items()}
PLAIN = frozenset({str, int, float, bool})


def run_config(values: Mapping[str, UserConfigValue]) -> RunConfig:
    """Make a checked configuration from kebab-case keys; values may be strings.

    Raises
    ------
    UserError
        For an unknown key, an unknown name, a value that is not allowed, or a setting that nothing uses.
    """
    types = tuple(map(type, values.values()))
    if not PLAIN.issuperset(types) or any(
        values.get(k, "") not in ("", RUN_KEYS[k].default) for k in ABSOLUTE
    ):
        return _found(values)  # a path in full depends on the current folder
    return _found_plain(tuple(values), types, tuple(values.values()))


def config_at_site(context: Context) -> RunConfig:
    """Make a run's configuration at a site; the owner's bounds are checked before data are read to count
    clients.

    Raises
    ------
    UserError
        As `run_config` and `Floors.checked` do.
    """
    if _is_counted(context.run_config):
        Floors.checked(context.node_config, _validated(given_by_key(context.run_config)))
    return run_config(context.run_config)


def _found(values: Mapping[str, UserConfigValue]) -> RunConfig:
    given = given_by_key(values)
    return _resolved(tuple((key, type(value), value) for key, value in sorted(given.items())))


@process_cache(maxsize=64)  # every message asks for its run's, several times
def _found_plain(
    keys: tuple[str, ...], types: tuple[type, ...], values: tuple[UserConfigValue, ...]
) -> RunConfig:
    """``types`` are the types of the values, as in `_resolved`."""
    return _found(dict(zip(keys, values, strict=True)))


@process_cache(maxsize=64)  # a configuration is requested by its given keys and by all keys
def _resolved(given: tuple[tuple[str, type, Any], ...]) -> RunConfig:
    """``given`` includes the type of each value, since True == 1 == 1.0 in a cache key."""
    config = _checked({key: value for key, _, value in given})
    return config if config.reference == "none" else _checked(baseline_keys(config.to_user_config()))


def _checked(given: Mapping[str, Any]) -> RunConfig:
    algorithms = named(given)
    check_used(given, [algorithms])
    objective = {one.kind: one.name for one in algorithms if one.kind == OBJECTIVE.key}
    config = _validated({**given, **objective})
    annexes.check_keys(config.model_dump(by_alias=True), DEFAULTS)
    config = _with_choices(config, _is_counted(given))
    resolved = resolve(algorithms, {**given, **config.model_dump(by_alias=True)})
    config = config.model_copy(update={"algorithm_settings": tuple(resolved.items())})
    try:
        check_conflicts(config, algorithms)
    except UserError as error:
        raise _of_default(error) from None
    return config


def _is_counted(given: Mapping[str, Any]) -> bool:
    """Return whether the number of clients has to be taken from the data."""
    return bool(given.get(NUM_CLIENTS, NOT_GIVEN) == NOT_GIVEN)


def _validated(given: Mapping[str, Any]) -> RunConfig:
    """Return the run's own keys, each validated separately; reads no data."""
    of_run = {key: value for key, value in given.items() if key in RUN_KEYS}
    of_run |= {NUM_CLIENTS: USUAL_CLIENTS} if _is_counted(given) else {}
    try:
        return RunConfig.model_validate(of_run)
    except ValidationError as error:
        wrong = {str(one["loc"][0]): one.get("ctx", {}).get("error") for one in error.errors()}
        key = next(filter(wrong.__contains__, RUN_KEYS))
        told = wrong[key] if isinstance(wrong[key], UserError) else None
        raise told or not_allowed(key, of_run[key], allowed(RUN_KEYS[key])) from None


def _of_default(error: UserError) -> UserError:
    """Return an error about a key's default reworded to say so; where that is none, the key is missing."""
    key, _, told = str(error).partition(": ")
    default = RUN_KEYS[key].default if key in RUN_KEYS else None
    if default is None or not told.startswith(said := f"{default!r} is not allowed"):
        return error
    what = "missing" if default in ("", 0, -1) else f"the default {said}"
    return UserError(f"{key}: {what}{told.removeprefix(said)}")


def _with_choices(config: RunConfig, counted: bool) -> RunConfig:
    """Return a configuration with ``auto`` values resolved, its models looked up, and the number of clients
    taken from the data if ``counted``.
    """
    auto = [key for key in ("model", "partition", "weighting") if getattr(config, key) == NOT_GIVEN]
    config = config.model_copy(update={key: config.usual_choices[key] for key in auto})
    if counted:
        config = config.model_copy(update={"num_clients": usual_clients(config)})
    for name in models_named(config.model):
        MODEL.find(name)
    if (norm := CLIENT.find(config.client).norm) and config.norm == RUN_KEYS["norm"].default:
        config = config.model_copy(update={"norm": norm})
    if config.problem != NOT_GIVEN:
        PROBLEM.find(config.problem)
    return with_splits(config)
