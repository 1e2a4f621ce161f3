"""An experiment: keys with values, or with lists of values, which make a sweep."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from flwr.app import UserConfigValue

from ..cli.parser import GRID_KEYS, every_run_of
from ..config.given import check_given, given_by_key
from ..config.help import as_text
from ..config.keys import ALIASES, RUN_KEYS
from ..config.making import run_config
from ..config.named_algorithms import (
    EXTENSION,
    NOT_GIVEN,
    REGISTRIES,
    Named,
    check_used,
    named,
    settings_of,
    with_full_paths,
)
from ..config.run_config import RunConfig
from ..config.trust import names_of
from ..core.errors import UserError, not_allowed
from ..core.ground.columns import HeldOut
from ..names import name_now, short

STANDARD_KEYS = frozenset(GRID_KEYS) - {"reference"}
SINGLE_VALUE_KEYS = (
    *("run-dir", "resume", "backend", "workers", "ray-address", "verbose"),
    *(held_out.key for held_out in HeldOut if held_out.one),
)
OF_DATA = frozenset(
    {
        *("dataset", "partition", "cache-dir", "problem", "predict", "columns", "missing-values"),
        *("label-column", "image-column", "image-size", "spacing", "window", "feature-shift"),
        *("group-column", "split-by", "subgroups"),
        *("encoding", "decimal", "thousands", "header-row", "date-format"),
    }
)
"""Keys by which it is known how many sites the data have."""
MOST_RUNS = 1000
"""Of cross-validation, or with each site left out."""

Value = str | tuple[str, ...]
Table = Mapping[str, Value]


@dataclass(frozen=True)
class Experiment:
    """Values by key, as text or a tuple of texts; made by `of`.

    Parameters
    ----------
    values : Mapping[str, str or tuple]
        The values of all runs.
    runs : tuple of Mapping
        Further tables. Each one defines runs with these values in place of ``values``.
    source : str
        The file that it was read from.
    from_file : frozenset of str
        The keys whose values come from the file.
    search : Mapping[str, str]
        The search space by key, in the syntax of ``--search``.
    trials : str, optional
        The number of trials of a search.
    """

    values: Table
    runs: tuple[Table, ...] = ()
    source: str = ""
    from_file: frozenset[str] = frozenset()
    search: Mapping[str, str] = field(default_factory=dict)
    trials: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], source: str = "") -> "Experiment":
        """Make an experiment from plain values and lists of them.

        ``runs`` may be a list of further such mappings. ``search`` may be a mapping of keys to search spaces,
        and of ``trials`` to the number of trials.

        Raises
        ------
        UserError
            For a value that is neither text, a number, true, false nor a list of these, for an empty list or
            a repeated value, and for a list in a key that needs one value for all runs.
        """
        try:
            runs = given.get("runs", [])
            if not isinstance(runs, list) or not all(isinstance(run, Mapping) for run in runs):
                raise not_allowed("runs", runs, "tables of keys")
            search = given.get("search", {})
            if not isinstance(search, Mapping) or ("search" in given and not search.keys() - {"trials"}):
                raise not_allowed("search", search, 'a table: KEY = "LOW..HIGH" or KEY = "A,B,..."')
            values = {key: value for key, value in given.items() if key not in ("runs", "search")}
            tables = _table(values), *(_table(run, SINGLE_VALUE_KEYS) for run in runs)
            space = {key: _text(key, value) for key, value in search.items()}
        except UserError as error:
            raise UserError(f"{source}: {error}" if source else str(error)) from None
        from_file = frozenset(key for table in tables for key in table) if source else frozenset()
        trials = space.pop("trials", None)
        return cls(tables[0], tables[1:], source, from_file, space, trials)

    def overridden(self, given: Mapping[str, Any]) -> "Experiment":
        """Return a copy with these values in all runs."""
        values = _table(given)
        runs = tuple({k: v for k, v in run.items() if k not in values} for run in self.runs)
        from_file = self.from_file.difference(values)
        search = {key: space for key, space in self.search.items() if key not in values}
        values = {**self.values, **values}
        return replace(self, values=values, runs=runs, from_file=from_file, search=search)

    def of_search(self, texts: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the values of the run of a search, and the spaces of its flags and of the file.

        For a key in both, the flag counts.

        Raises
        ------
        UserError
            When there are several runs.
        """
        keys = {text.partition("=")[0] for text in texts}
        spaces = [*(f"{key}={text}" for key, text in self.search.items() if key not in keys), *texts]
        if self.is_sweep:
            swept = ", ".join(self.lists) or "runs"
            raise UserError(f"search: {spaces[0]!r} needs a single run, but this is a sweep of {swept}")
        run_dir = {key: str(value) for key, value in self.values.items() if key == "run-dir"}
        return {**self.as_given(), **run_dir}, spaces

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the keys and names in the file, and each choice of the search space."""
        for table in (self.values, *self.runs):
            yield from names_of({key: value for key, value in table.items() if key in self.from_file})
        for key, text in self.search.items():
            yield from names_of({key: text.replace(";", ",").split(",")})

    @property
    def is_sweep(self) -> bool:
        """Whether this is a sweep, even of a single run."""
        return bool(self.runs or self.lists)

    @property
    def lists(self) -> list[str]:
        """The keys with a list of values."""
        tables = map(_with_every_run, (self.values, *self.runs))
        found = [key for table in tables for key, value in table.items() if isinstance(value, tuple)]
        return list(dict.fromkeys(found))

    def tables(self, keys: Sequence[str] = ()) -> list[list[dict[str, str]]]:
        """Return the product of the lists for each table of ``runs``; seeds vary fastest.

        If ``keys`` are given, the product is limited to them.
        """
        tables = []
        for run in self.runs or ({},):
            given = _with_every_run({**self.values, **run})
            chosen = sorted((key for key in given if not keys or key in keys), key="seed".__eq__)
            axes = [v if isinstance(v, tuple) else (v,) for v in map(given.__getitem__, chosen)]
            tables.append([dict(zip(chosen, cell, strict=True)) for cell in product(*axes)])
        return tables

    def algorithms(self) -> list[Named]:
        """Return every algorithm that is named."""
        keys = [*(registry.key for registry in REGISTRIES), EXTENSION.key]
        cells = [cell for table in self.tables(keys) for cell in table]
        return list(
            dict.fromkeys(algorithm for cell in cells for algorithm in self._with_source(named, cell))
        )

    def configurations(self) -> list[RunConfig]:
        """Return the configuration of each run, in order, without duplicates.

        Raises
        ------
        UserError
            For a key or a value that is not allowed.
        """
        tables = [
            [{key: with_full_paths(key, text) for key, text in cell.items()} for cell in table]
            for table in self.tables()
        ]
        found = self._with_source(run_configs, tables)
        return list({tuple(config.to_user_config().items()): config for config in found}.values())

    def _with_source(self, make: Any, given: Any) -> Any:
        """Call ``make(given)``; errors about keys from the file name the file."""
        try:
            return make(given)
        except UserError as error:
            line = str(error)
            if any(
                line.startswith((f"{key}:", f"configuration: unknown name {key!r}")) for key in self.from_file
            ):
                raise UserError(f"{self.source}: {line}") from None
            raise

    def as_given(self) -> dict[str, Any]:
        """Return the content of ``experiment.json``, with full paths of files; `of` reads it."""

        def plain(table: Table) -> dict[str, Any]:
            return {
                key: [with_full_paths(key, text) for text in v]
                if isinstance(v, tuple)
                else with_full_paths(key, v)
                for key, v in table.items()
            }

        runs = {"runs": [plain(run) for run in self.runs]} if self.runs else {}
        return {**plain({k: v for k, v in self.values.items() if k != "run-dir"}), **runs}


def _with_every_run(given: Table) -> Table:
    """Return a table with a list of the runs that ``folds``, or ``leave-one-site-out``, asks for."""
    every = every_run_of(given)
    if every is HeldOut.FOLDS:
        folds = str(given["folds"])
        _check_runs("folds", folds)
        return {**given, HeldOut.FOLDS.one: tuple(str(1 + i) for i in range(int(folds)))}
    if every is HeldOut.SITE:
        clients = given.get("num-clients", NOT_GIVEN)
        of_data = {key: value for key, value in given.items() if key in OF_DATA}
        several = [key for key, value in of_data.items() if isinstance(value, tuple)]
        if isinstance(clients, tuple) or (several and clients == NOT_GIVEN):
            told = ",".join(clients) if isinstance(clients, tuple) else clients
            with_lists = f" and several of {several[0]}" if several else ""
            raise not_allowed("num-clients", told, f"one value with leave-one-site-out{with_lists}")
        if clients == NOT_GIVEN:
            clients = str(run_config({key: str(value) for key, value in of_data.items()}).num_clients)
        if clients.isdecimal():
            _check_runs("num-clients", clients)
            return {**given, HeldOut.SITE.one: tuple(map(str, range(int(clients))))}
    return given


def _check_runs(key: str, count: str) -> None:
    if int(count) > MOST_RUNS:
        raise not_allowed(key, count, f"at most {MOST_RUNS}: there is a run for each")


def run_configs(tables: Sequence[Sequence[Mapping[str, UserConfigValue]]]) -> list[RunConfig]:
    """Make a configuration for every cell of every table; a setting applies to the cells that use it.

    Raises
    ------
    UserError
        As `run_config` does; for a setting that no cell of its table uses, or no cell at all if all tables
        have it.
    """
    given = [[given_by_key(cell) for cell in table] for table in tables]
    runs = [[named(cell) for cell in table] for table in given]
    keys = [{key: v for cell in reversed(table) for key, v in cell.items()} for table in given]
    common = {key: value for key, value in keys[0].items() if all(key in table for table in keys)}
    check_used(common, [run for table in runs for run in table])
    for given_keys, table in zip(keys, runs, strict=True):
        check_used({key: value for key, value in given_keys.items() if key not in common}, table)
    return [
        run_config({key: value for key, value in cell.items() if key in RUN_KEYS or key in _used_by(run)})
        for cells, table in zip(given, runs, strict=True)
        for cell, run in zip(cells, table, strict=True)
    ]


def _used_by(algorithms: Iterable[Named]) -> set[str]:
    return {key for algorithm in algorithms for key in settings_of(algorithm.cls)}


def swept_keys(experiment: Experiment, configs: Sequence[RunConfig]) -> tuple[str, ...]:
    """Return the keys that distinguish an experiment's runs, besides `STANDARD_KEYS`.

    These are the keys with a list, the standard keys whose short names are ambiguous, and those keys of
    ``runs`` that are needed to tell the remaining runs apart.
    """
    keys = [key for key in experiment.lists if key not in STANDARD_KEYS]
    rows = [config.to_user_config() for config in configs]
    names = {key: {str(row[key]) for row in rows} for key in STANDARD_KEYS}
    keys += sorted(key for key, found in names.items() if len(set(map(short, found))) < len(found))
    for key in dict.fromkeys(key for run in experiment.runs for key in run):
        cells = {_values(row, (*STANDARD_KEYS, *keys)) for row in rows}
        if len({_values(row, (*STANDARD_KEYS, *keys, key)) for row in rows}) > len(cells):
            keys.append(key)
    return tuple(dict.fromkeys(keys))


def _values(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(key, NOT_GIVEN) for key in keys)


def _table(given: Mapping[str, Any], refused: Sequence[str] = ()) -> Table:
    table: dict[str, Value] = {}
    for word, value in given.items():
        key = ALIASES.get(word, word)
        if key in table:
            raise UserError(f"{key}: given twice, the second time as {word}")
        table[key] = _value(key, value)
        if key in refused or (key in SINGLE_VALUE_KEYS and isinstance(table[key], tuple)):
            raise not_allowed(key, value, "one value for all runs")
    return table


def _value(key: str, given: Any) -> Value:
    if isinstance(given, str) and key in GRID_KEYS and "," in given:
        given = given.split(",")
    if not isinstance(given, list | tuple):
        return _text(key, given)
    values = tuple(_text(key, value) for value in given)
    if not values or len({with_full_paths(key, value) for value in values}) < len(values):
        listed = ",".join(map(str, given))
        raise not_allowed(key, listed, "each value once" if values else "at least one value")
    return values


def _text(key: str, given: Any) -> str:
    if not isinstance(given, str | bool | int | float):
        raise not_allowed(key, given, "text, a number, true or false, or a list of these")
    check_given(key, given)
    return name_now(key, as_text(given).strip())


def parse_settings(texts: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Parse each ``KEY=V1,V2`` of ``--sweep``; values are split at ``;`` if there is one.

    Raises
    ------
    UserError
        For any other form.
    """
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key.strip() and equals and values.strip()):
            raise not_allowed("sweep", text, "KEY=V1,V2,... (or KEY=V1;V2;... for values with commas)")
        yield key.strip(), values.split(";" if ";" in values else ",")
