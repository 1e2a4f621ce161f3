"""Simulate from Python: ``from fedbn_flower import simulate``."""

from __future__ import annotations

import inspect
import logging
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import UserConfigValue
from rich.console import Console

from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.strategies import PseudoGradientStrategy

from .. import annexes
from ..config.data_request import predicted_by
from ..config.given import check_given, given_settings
from ..config.gone import refuse_gone
from ..config.help import as_text, common_flags, inherited_flags
from ..config.keys import RUN_KEYS, flag_of
from ..config.making import run_config
from ..config.named_algorithms import EXTENSION, NOT_GIVEN, REGISTRIES, names_code, with_full_paths
from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..core.ground.settings import allowed
from ..core.logs import show_log
from ..core.process_cache import clear_process_caches
from ..core.session_objects import new_name, with_session_objects
from ..data import cache_folder
from ..data.readers.arrays import are_datasets, arrays_by_name, keep_arrays, numbered_groups
from ..data.sources import GROUP
from ..data.splits.subgroups import given_subgroups
from ..extensions import Extension
from ..models.named import MODEL
from ..names import DATASET, PROBLEM
from ..records.events import Observer
from ..results.progress import progress as show_progress
from ..results.progress import show_learnt, waiting
from ..results.resume import resumed
from ..runtime import simulation
from ..runtime.pools import check_workers, pool_for
from ..server.federation import Federation
from .result import Result

KINDS = {registry.key: registry for registry in (*REGISTRIES, PROBLEM, MODEL, DATASET)}


def simulate(
    *,
    data: Sequence[Any] | Mapping[Any, Any] | None = None,
    test: Any = None,
    groups: Any = None,
    subgroups: str | Mapping[str, Any] = "",
    progress: bool = True,
    observers: Sequence[Observer] = (),
    extensions: Sequence[type[Extension] | str] = (),
    **keys: Any,
) -> Result:
    """Simulate a run and return its results, bit-identical to those of ``run_sim.py``.

    Parameters
    ----------
    data : (x, y, x_test, y_test), or a sequence or mapping of Datasets, optional
        Data in place of ``dataset``: training and test arrays, as `keep_arrays` takes them, or torch
        Datasets, one per client, as `pooled` takes them. Every item of a Dataset is read once. With Datasets
        the defaults are ``partition="natural:client"`` and their number for ``num_clients``.
    test : Dataset, or a sequence or mapping of Datasets, optional
        With Datasets: held-out examples, for all clients or one Dataset per client, who is then evaluated on
        its own. Without it a fixed fifth of each client's examples is held out.
    groups : pair, sequence or mapping of arrays, optional
        The group of each example, such as its patient, as words or whole numbers: a pair of arrays, for
        ``x`` and ``x_test``, or with Datasets an array for each client. All examples of a group are on one
        side of every split; ``group_column`` is then ``"group"``.
    subgroups : str or mapping of pairs of arrays, optional
        Whose held-out cases have metrics of their own: columns of a dataset, as the key ``subgroups`` has
        them; or, with arrays as data, by name, a pair of arrays of words, whole numbers or truth values, for
        ``x`` and for ``x_test``. None and NaN are of no subgroup.
    progress : bool
        Whether to show a progress bar.
    observers : Sequence[Observer], optional
        Objects that are called when the run starts, after every round, and when it ends; see `Observer`.
    extensions : Sequence[type[Extension] or str], optional
        Classes that take part in the run, or their names, as the key ``extension`` has them; see `Extension`.
        Their settings are keys.
    **keys
        Any key of the run configuration and any setting of its algorithms, with underscores for hyphens.
        ``help(simulate)`` lists the keys by group; docs/reference.md also lists each algorithm's settings.
        Instead of a name, ``strategy`` may be a class or an instance, ``client``, ``objective``, ``loss``
        and ``problem`` a class, ``model`` a function that takes an `InputSpec` or no arguments, and
        ``dataset`` a function of ``"train"`` or ``"test"``, or a subclass of `Kind` that has such a function
        as ``read``. An instance of a strategy stands for its class with its settings.

    Returns
    -------
    Result
        The results. ``folder`` is ``run_dir`` or, by default, a new folder under ``runs/``, named as by
        ``run_sim.py``.

    Raises
    ------
    UserError
        For anything that is not allowed, before anything starts.
    RunFailed
        When the run failed; its results so far stay in the folder.

    Examples
    --------
    Four sites whose scanners differ, and whose BatchNorm layers stay local:

    >>> from fedbn_flower import simulate
    >>> result = simulate(strategy="fedavg", client="fedbn", rounds=3, backend="inline", progress=False)
    >>> result.history["round"].tolist()
    [1, 2, 3]
    >>> result.summary["client-mean"]["accuracy"] > 0.5
    True
    >>> model = result.model(client=1)
    """
    observers = _list_of(observers)
    keys |= _as_key(extensions, keys)
    if not isinstance(subgroups, str | Mapping):
        raise not_allowed("subgroups", subgroups, "text, or a mapping of names to pairs of arrays")
    if isinstance(subgroups, str) and subgroups:
        keys["subgroups"] = subgroups
    if not isinstance(progress, bool | int):
        raise not_allowed("progress", progress, "true or false")
    values, objects = _split_keys(keys)
    if data is not None:
        if "dataset" in values:
            raise UserError("dataset: given twice, the second time as data")
        cache = cache_folder(str(values.get("cache-dir", "auto")))
        named = {} if isinstance(subgroups, str) else subgroups
        values = _store_data(data, test, groups, cache, _targets_learnt(values, objects), named) | values
    elif test is not None:
        raise UserError("test: given without data")
    elif groups is not None:
        raise UserError("groups: given without data; group_column names the column of a dataset")
    elif not isinstance(subgroups, str):
        raise UserError("subgroups: arrays are given without data; expected columns of the dataset, as text")
    clear_process_caches()
    with with_session_objects(objects), _restored_process(), usual_surroundings():
        config = resumed(values) if values.get("resume") else run_config(values)
        show_log(config.verbose)
        folder = _run(config, Console(quiet=not progress, emoji=False), observers)
    model = next((objects[name] for name in objects if name == config.model), None)
    return Result(folder, model, trust_code=True)


def _list_of(observers: Any) -> list[Observer]:
    """Return observers as a list.

    Raises
    ------
    UserError
        When they are none.
    """
    given = list(observers) if isinstance(observers, Iterable) else [observers]
    if wrong := [one for one in given if not isinstance(one, Observer)]:
        raise not_allowed("observers", wrong[0], "instances of Observer")
    return given


def _as_key(extensions: Any, keys: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return extensions as a value of their key; nothing without any."""
    several = isinstance(extensions, Iterable) and not isinstance(extensions, str | type)
    given = tuple(extensions) if several else (extensions,)
    if given and "extension" in keys:
        raise UserError("extension: given twice, the second time as extensions")
    return {"extension": given} if given else {}


def _keys_by_group() -> str:
    """Return all keys as arguments, with default, meaning and allowed values."""
    lines = ["Keys", "----"]
    for title, flags in (common_flags() | inherited_flags()).items():
        lines.append(f"{title}:")
        for flag in flags:
            words = textwrap.wrap(f"{flag.meaning}; {flag.allowed}", 92)
            lines += [f"    {flag.key.replace('-', '_')}={flag.value!r}", *(f"        {w}" for w in words)]
    return "\n".join(lines)


simulate.__doc__ = f"{inspect.cleandoc(simulate.__doc__ or '')}\n\n{_keys_by_group()}\n"


def _targets_learnt(values: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    """Return what the problem learns, as `Request.predict` has it; ``auto`` if it is not stated."""
    name = str(values.get("problem", NOT_GIVEN))
    with suppress(UserError):  # an unknown name is refused with the other keys
        return predicted_by(objects.get(name) or (None if name == NOT_GIVEN else PROBLEM.find(name)))
    return NOT_GIVEN


def _store_data(
    data: Any, test: Any, groups: Any, cache: Path, predict: str, subgroups: Mapping[str, Any]
) -> dict[str, UserConfigValue]:
    """Cache a caller's data and return the keys by which a run finds them."""
    grouped: dict[str, UserConfigValue] = {} if groups is None else {"group-column": GROUP}
    if not are_datasets(data):
        if test is not None:
            raise UserError(
                "test: not used with arrays, which have x_test and y_test; expected Datasets as data"
            )
        arrays, units = arrays_by_name(data), None
        if groups is not None:
            sizes = {name: len(arrays[name]) for name in ("x", "x_test")}
            units = numbered_groups(groups, sizes, "a pair of arrays, for x and for x_test")
        divided = given_subgroups(subgroups, [len(arrays[name]) for name in ("x", "x_test")])
        name = keep_arrays(cache, arrays, predict=predict, units=units, subgroups=divided)
        return {"dataset": name, **grouped, **({"subgroups": ",".join(divided)} if divided else {})}
    if subgroups:
        raise UserError("subgroups: not used with Datasets; expected arrays as data, or a table as dataset")
    pooled: Callable[..., tuple[Any, ...]] = annexes.load("datasets", "pooled", "data")
    name = partial(keep_arrays, cache, predict=predict)(*pooled(data, test, groups))
    return {"dataset": name, "partition": "natural:client", "num-clients": len(data), **grouped}


def _run(config: RunConfig, console: Console, observers: Sequence[Observer]) -> Path:
    """Run the configuration and return its folder."""
    check_workers(config)
    simulation.check_simulation(config)
    with waiting(console, "reading data"):
        federation = Federation(config)
    show_learnt([federation.learnt], console)
    folder = simulation.prepared_folder(config)
    with waiting(console, "starting workers"):
        pool = pool_for(config)
    try:
        simulation.simulate(federation, folder, pool, [show_progress(config, console), *observers])
    except BaseException as error:  # Ctrl-C too
        error.add_note(f"results so far are in {folder}")
        raise
    finally:
        if pool:
            pool.close()
    return folder


@contextmanager
def _restored_process() -> Iterator[None]:
    """Restore torch's thread count and Flower's log level at the end."""
    logger, threads = logging.getLogger("flwr"), torch.get_num_threads()
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
        torch.set_num_threads(threads)


def _split_keys(keys: Mapping[str, Any]) -> tuple[dict[str, UserConfigValue], dict[str, Any]]:
    """Split arguments into configuration values by key, and Python objects by generated name."""
    values: dict[str, UserConfigValue] = {}
    objects: dict[str, Any] = {}
    for word, given in keys.items():
        key, value = flag_of(word), _plain(given)
        check_given(key, value)
        if key == "metrics" and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        if key == EXTENSION.key and not isinstance(value, str):
            value, named = _named_extensions(value if isinstance(value, list | tuple) else [value])
            objects |= named
        if isinstance(value, PseudoGradientStrategy) and key == "strategy":
            settings = given_settings(value)
            if twice := settings.keys() & set(map(flag_of, keys)):
                raise UserError(f"{min(twice)}: given twice, the second time in the strategy")
            values |= settings
            value = type(value)
        if key == DATASET.key and type(value) in (int, float):  # a folder may be called 2024
            value = as_text(value)
        if key in KINDS and not isinstance(value, str):
            KINDS[key].check(value)
            built_in = [name for name, algorithm in KINDS[key].names.items() if algorithm is value]
            name = built_in[0] if built_in else new_name(value)
            objects |= {} if built_in else {name: value}
            value = name
        elif names_code(key) and isinstance(value, str):
            value = with_full_paths(key, value)
        elif not isinstance(value, str | bool | int | float):
            expected = allowed(RUN_KEYS[key]) if key in RUN_KEYS else "text, a number, true or false"
            raise not_allowed(key, value, expected)
        refuse_gone(key, [value])
        values[key] = value
    return values, objects


def _named_extensions(given: Sequence[Any]) -> tuple[str, dict[str, type[Extension]]]:
    """Return extensions as text, and the classes among them by generated name."""
    names: list[str] = []
    objects: dict[str, type[Extension]] = {}
    for one in given:
        if isinstance(one, str):
            names.append(one)
            continue
        EXTENSION.check(one)
        names.append(new_name(one))
        objects[names[-1]] = one
    return ",".join(names), objects


def _plain(value: Any) -> Any:
    """Return a path as text, a NumPy number as a Python number, and anything else unchanged."""
    if isinstance(value, PathLike):
        return fspath(value)
    return value.item() if isinstance(value, np.generic) else value
