"""Simulate from Python: ``from fedbn_flower import simulate``."""

import inspect
import logging
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import UserConfigValue
from rich.console import Console

from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.settings import allowed

from ..config.help import common_flags, inherited_flags
from ..config.keys import OWN_KEYS, flag_of
from ..config.registry import MODEL, absolute
from ..config.run_config import RunConfig
from ..config.selection import REGISTRIES
from ..config.strategy_instances import told_of
from ..core.errors import UserError, not_allowed
from ..core.logs import show_log
from ..core.process_cache import clear_process_caches
from ..core.session_objects import at_hand, new_name
from ..data import cache_folder
from ..federation.federation import Federation
from ..records.events import Observer
from ..results.progress import progress as watching
from ..results.progress import waiting
from ..results.resume import resumed
from ..runtime import simulation
from ..runtime.capacity import check_workers
from .arrays import arrays_by_name, keep_arrays
from .result import Result
from .torch_datasets import are_datasets, pooled

KINDS = {registry.key: registry for registry in (*REGISTRIES, MODEL)}


def simulate(
    *,
    data: Sequence[Any] | Mapping[Any, Any] | None = None,
    test: Any = None,
    progress: bool = True,
    observers: Sequence[Observer] = (),
    **keys: Any,
) -> Result:
    """Simulate a run, as ``run_sim.py`` does, and give its results: the same ones, bit for bit.

    Parameters
    ----------
    data : (x, y, x_test, y_test), or a sequence or mapping of Datasets, optional
        In the place of ``dataset``: arrays for training and for testing, as `keep_arrays` takes them, or
        torch Datasets, one a client, of which every item is read once, as `pooled` says; the partition is
        then ``natural:client`` and ``num_clients`` as many as they are, unless told otherwise.
    test : Dataset, or a sequence or mapping of Datasets, optional
        Beside Datasets: held-out examples for all clients, or each client's own. Without it a fixed fifth of
        each client's is held out.
    progress : bool
        Whether a bar is shown.
    observers : Sequence[Observer], optional
        Objects that are called when the run starts, after every round, and when it ends, whatever ends it;
        see `Observer`.
    **keys
        Every key of the run configuration and every setting of its algorithms, with underscores for hyphens;
        ``help(simulate)`` lists the keys by group, docs/reference.md the settings of each algorithm too.
        In place of a name, ``strategy`` may be a class or an instance of one, ``client`` and ``objective`` a
        class, and ``model`` a function of `InputSpec`, or one without arguments. An instance stands for its
        class with the settings that it was made with.

    Returns
    -------
    Result
        Its ``folder`` is ``run_dir``; without one, a new folder under ``runs/``, as ``run_sim.py`` names it.

    Raises
    ------
    UserError
        For anything that is not allowed, before anything starts.
    RunFailed
        When the run could not do its work; what was done so far stays in the folder.

    Examples
    --------
    Two silos of digits, five classes each, whose BatchNorm stays at home:

    >>> from fedbn_flower import simulate
    >>> result = simulate(strategy="fedavg", client="fedbn", rounds=3, backend="inline", progress=False)
    >>> result.history["round"].tolist()
    [1, 2, 3]
    >>> result.summary["client-mean"]["accuracy"] > 0.5
    True
    >>> model = result.model(client=1)
    """
    if wrong := [one for one in observers if not isinstance(one, Observer)]:
        raise UserError(f"observers: {wrong[0]!r} is not allowed; expected objects of classes of Observer's")
    values, own = _named(keys)
    if data is not None:
        if "dataset" in values:
            raise UserError("dataset: given twice, the second time as data")
        values = _kept(data, test, cache_folder(str(values.get("cache-dir", "auto")))) | values
    elif test is not None:
        raise UserError("test: given without data")
    clear_process_caches()
    with at_hand(own), _as_it_was():
        config = resumed(values) if values.get("resume") else RunConfig.of(values)
        show_log(config.verbose)
        folder = _run(config, Console(quiet=not progress), observers)
    model = next((own[name] for name in own if name == config.model), None)
    return Result(folder, model, trust_code=True)


def _keys_by_group() -> str:
    """Every key as an argument with its default, its meaning and what it may be."""
    lines = ["Keys", "----"]
    for title, flags in (common_flags() | inherited_flags()).items():
        lines.append(f"{title}:")
        for flag in flags:
            words = textwrap.wrap(f"{flag.meaning}; {flag.allowed}", 92)
            lines += [f"    {flag.key.replace('-', '_')}={flag.value!r}", *(f"        {w}" for w in words)]
    return "\n".join(lines)


simulate.__doc__ = f"{inspect.cleandoc(simulate.__doc__ or '')}\n\n{_keys_by_group()}\n"


def _kept(data: Any, test: Any, cache: Path) -> dict[str, UserConfigValue]:
    """The keys by which a run finds the data of a caller."""
    if not are_datasets(data):
        if test is not None:
            raise UserError(
                "test: given beside arrays, which have x_test and y_test; expected Datasets as data"
            )
        return {"dataset": keep_arrays(cache, arrays_by_name(data))}
    name = keep_arrays(cache, *pooled(data, test))
    return {"dataset": name, "partition": "natural:client", "num-clients": len(data)}


def _run(config: RunConfig, console: Console, observers: Sequence[Observer]) -> Path:
    """One run in its folder."""
    check_workers(config)
    simulation.check_simulation(config)
    with waiting(console, "reading data"):
        federation = Federation(config)
    folder = simulation.prepared_folder(config)
    with waiting(console, "starting workers"):
        pool = simulation.ray_pool(config)
    try:
        simulation.simulate(federation, folder, pool, [watching(config, console), *observers])
    except BaseException as error:  # Ctrl-C too
        error.add_note(f"what was done so far is in {folder}")
        raise
    finally:
        if pool:
            pool.close()
    return folder


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Leave the caller's process as it was: torch's threads, and what Flower logs."""
    logger, threads = logging.getLogger("flwr"), torch.get_num_threads()
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
        torch.set_num_threads(threads)


def _named(keys: Mapping[str, Any]) -> tuple[dict[str, UserConfigValue], dict[str, Any]]:
    """A configuration's values by key, and the objects that it names by names of their own."""
    values: dict[str, UserConfigValue] = {}
    own: dict[str, Any] = {}
    for word, given in keys.items():
        key, value = flag_of(word), _plain(given)
        if isinstance(value, PseudoGradientStrategy) and key == "strategy":
            told = told_of(value)
            if twice := told.keys() & set(map(flag_of, keys)):
                raise UserError(f"{min(twice)}: given twice, the second time in the strategy")
            values |= told
            value = type(value)
        if key in KINDS and not isinstance(value, str):
            KINDS[key].check(value)
            built_in = [name for name, algorithm in KINDS[key].names.items() if algorithm is value]
            name = built_in[0] if built_in else new_name(value)
            own |= {} if built_in else {name: value}
            value = name
        elif key in KINDS:
            value = absolute(value, KINDS[key].names)
        elif not isinstance(value, str | bool | int | float):
            words = allowed(OWN_KEYS[key]) if key in OWN_KEYS else "text, a number, true or false"
            raise not_allowed(key, value, words)
        values[key] = value
    return values, own


def _plain(value: Any) -> Any:
    """A path as text, a number of NumPy's as Python's; anything else as it is."""
    if isinstance(value, PathLike):
        return fspath(value)
    return value.item() if isinstance(value, np.generic) else value
