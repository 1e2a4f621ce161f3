"""An experiment: keys with a value, or with a list of values that makes a sweep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ..config.help import as_text
from ..config.keys import FORMER_KEYS
from ..config.registry import absolute, short
from ..config.run_config import RunConfig
from ..config.selection import NAMED, NOT_GIVEN, REGISTRIES, Named, named
from ..config.trust import names_of
from ..core.errors import UserError, not_allowed

GRID_KEYS = ("strategy", "client", "objective", "reference", "seed")
"""Keys in which a comma makes a list."""
IN_EVERY_TABLE = frozenset(GRID_KEYS) - {"reference"}
ONE_FOR_ALL = ("run-dir", "resume", "backend", "workers", "ray-address", "verbose")

Value = str | tuple[str, ...]
Table = Mapping[str, Value]


@dataclass(frozen=True)
class Experiment:
    """Values by key, as text or a tuple of texts; made by `of`.

    Parameters
    ----------
    values : Mapping[str, str or tuple]
        What holds for every run.
    runs : tuple of Mapping
        Further tables, each of which overrides the values in runs of its own.
    source : str
        The file it was read from.
    told : frozenset of str
        The keys whose values are the file's.
    search : Mapping[str, str]
        What is searched, by key, in the form that ``--search`` has.
    trials : str, optional
        How many trials a search has.
    """

    values: Table
    runs: tuple[Table, ...] = ()
    source: str = ""
    told: frozenset[str] = frozenset()
    search: Mapping[str, str] = field(default_factory=dict)
    trials: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], source: str = "") -> "Experiment":
        """From plain values and lists of them; ``runs`` may be a list of further such mappings, ``search`` a
        mapping of keys to what is searched, and ``trials`` to how many trials there are.

        Raises
        ------
        UserError
            For a value that is neither text, a number, true, false nor a list of these, for a list with
            nothing in it or one value twice, and for a list where one value holds for all runs.
        """
        try:
            runs = given.get("runs", [])
            if not isinstance(runs, list) or not all(isinstance(run, Mapping) for run in runs):
                raise not_allowed("runs", runs, "tables of keys")
            search = given.get("search", {})
            if not isinstance(search, Mapping) or ("search" in given and not search.keys() - {"trials"}):
                raise not_allowed("search", search, 'a table: KEY = "LOW..HIGH" or KEY = "A,B,..."')
            values = {key: value for key, value in given.items() if key not in ("runs", "search")}
            tables = _table(values), *(_table(run, ONE_FOR_ALL) for run in runs)
            space = {key: _text(key, what) for key, what in search.items()}
        except UserError as error:
            raise UserError(f"{source}: {error}" if source else str(error)) from None
        told = frozenset(key for table in tables for key in table) if source else frozenset()
        trials = space.pop("trials", None)
        return cls(tables[0], tables[1:], source, told, space, trials)

    def overridden(self, given: Mapping[str, Any]) -> "Experiment":
        """With other values for these keys in all runs."""
        values = _table(given)
        runs = tuple({k: v for k, v in run.items() if k not in values} for run in self.runs)
        told = self.told.difference(values)
        search = {key: what for key, what in self.search.items() if key not in values}
        return replace(self, values={**self.values, **values}, runs=runs, told=told, search=search)

    def names(self) -> Iterator[tuple[str, str]]:
        """What the file says, by key; of what is searched every choice."""
        for table in (self.values, *self.runs):
            yield from names_of({key: value for key, value in table.items() if key in self.told})
        for key, text in self.search.items():
            yield from names_of({key: text.replace(";", ",").split(",")})

    @property
    def is_sweep(self) -> bool:
        """Whether it stands for a table of runs, be it a table of one."""
        return bool(self.runs or self.lists)

    @property
    def lists(self) -> list[str]:
        """The keys with a list."""
        tables = (self.values, *self.runs)
        found = [key for table in tables for key, value in table.items() if isinstance(value, tuple)]
        return list(dict.fromkeys(found))

    def tables(self, keys: Sequence[str] = ()) -> list[list[dict[str, str]]]:
        """The product of the lists, by run; of these keys only, if any are named. Seeds vary fastest."""
        tables = []
        for run in self.runs or ({},):
            given = {**self.values, **run}
            chosen = sorted((key for key in given if not keys or key in keys), key="seed".__eq__)
            axes = [v if isinstance(v, tuple) else (v,) for v in map(given.__getitem__, chosen)]
            tables.append([dict(zip(chosen, cell, strict=True)) for cell in product(*axes)])
        return tables

    def algorithms(self) -> list[Named]:
        """Every algorithm that is named."""
        cells = [cell for table in self.tables([r.key for r in REGISTRIES]) for cell in table]
        return list(dict.fromkeys(algorithm for cell in cells for algorithm in self._told(named, cell)))

    def configurations(self) -> list[RunConfig]:
        """A configuration for every run, in the order given; those that come to the same are one.

        Raises
        ------
        UserError
            For anything that is not allowed.
        """
        tables = [
            [{key: _found(key, text) for key, text in cell.items()} for cell in table]
            for table in self.tables()
        ]
        found = self._told(RunConfig.grid, tables)
        return list({tuple(config.to_user_config().items()): config for config in found}.values())

    def _told(self, make: Any, given: Any) -> Any:
        """What a function gives; a mistake in the file is told with the file."""
        try:
            return make(given)
        except UserError as error:
            line = str(error)
            if any(line.startswith((f"{key}:", f"configuration: unknown name {key!r}")) for key in self.told):
                raise UserError(f"{self.source}: {line}") from None
            raise

    def as_given(self) -> dict[str, Any]:
        """As it is kept in ``experiment.json``, with the full paths of files; `of` takes it."""

        def plain(table: Table) -> dict[str, Any]:
            return {
                key: [_found(key, text) for text in v] if isinstance(v, tuple) else _found(key, v)
                for key, v in table.items()
            }

        runs = {"runs": [plain(run) for run in self.runs]} if self.runs else {}
        return {**plain({k: v for k, v in self.values.items() if k != "run-dir"}), **runs}


def swept_keys(experiment: Experiment, configs: Sequence[RunConfig]) -> tuple[str, ...]:
    """The keys by which an experiment's runs are told apart, beside `IN_EVERY_TABLE`: those with a list, as
    many of its further tables' as it takes, and those whose short names are not enough."""
    keys = [key for key in experiment.lists if key not in IN_EVERY_TABLE]
    rows = [config.to_user_config() for config in configs]
    names = {key: {str(row[key]) for row in rows} for key in IN_EVERY_TABLE}
    keys += sorted(key for key, found in names.items() if len(set(map(short, found))) < len(found))
    for key in dict.fromkeys(key for run in experiment.runs for key in run):
        places = {_place(row, (*IN_EVERY_TABLE, *keys)) for row in rows}
        if len({_place(row, (*IN_EVERY_TABLE, *keys, key)) for row in rows}) > len(places):
            keys.append(key)
    return tuple(dict.fromkeys(keys))


def _place(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(key, NOT_GIVEN) for key in keys)


def _table(given: Mapping[str, Any], refused: Sequence[str] = ()) -> Table:
    table: dict[str, Value] = {}
    for word, value in given.items():
        key = FORMER_KEYS.get(word, word)
        if key in table:
            raise UserError(f"{key}: given twice, the second time as {word}")
        table[key] = _value(key, value)
        if key in refused or (key in ONE_FOR_ALL and isinstance(table[key], tuple)):
            raise UserError(f"{key}: {value!r} is not allowed; expected one value for all runs")
    return table


def _value(key: str, given: Any) -> Value:
    if isinstance(given, str) and key in GRID_KEYS and "," in given:
        given = given.split(",")
    if not isinstance(given, list | tuple):
        return _text(key, given)
    values = tuple(_text(key, value) for value in given)
    if not values or len({_found(key, value) for value in values}) < len(values):
        told = ",".join(map(str, given))
        raise not_allowed(key, told, "no value twice" if values else "at least one value")
    return values


def _text(key: str, given: Any) -> str:
    if not isinstance(given, str | bool | int | float):
        raise not_allowed(key, given, "text, a number, true or false, or a list of these")
    return as_text(given).strip()


def _found(key: str, text: str) -> str:
    """With the full path of a file, which another process may be in another folder than."""
    return absolute(text, NAMED[key]) if key in NAMED else text


def settings_told(texts: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """``KEY=V1,V2`` of ``--sweep``, taken apart; by ``;`` where the text has one.

    Raises
    ------
    UserError
        For another form.
    """
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key.strip() and equals and values.strip()):
            raise not_allowed("sweep", text, "KEY=V1,V2,... (or KEY=V1;V2;... for values with commas)")
        yield key.strip(), values.split(";" if ";" in values else ",")
