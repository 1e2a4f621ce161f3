"""The command line: every configuration key and every setting as a flag; a comma makes a grid."""

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NoReturn

from .algorithms import REGISTRIES, Named, named
from .config import RunConfig
from .errors import UserError
from .flags import Flag, common_flags, flags_of, inherited_flags
from .keys import FORMER_KEYS, OWN_KEYS
from .models import MODELS
from .registry import LOSS, absolute, short
from .results.resume import resumed
from .search.asked import TRIALS, Search, new_search, resumed_search
from .search.space import FORM

ALGORITHM_KEYS = ("strategy", "client", "objective", "loss", "model")
GRID_KEYS = ("strategy", "client", "objective", "reference", "seed")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


class _Once(argparse.Action):
    """Stores a value; a second one is a mistake."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise UserError(f"{option_string}: given twice")
        setattr(namespace, self.dest, values)


def parse(arguments: Sequence[str]) -> list[RunConfig] | Search:
    """Parse and check the whole command line: a configuration for every cell of the grid, or a search.

    Raises
    ------
    UserError
        For anything that is not allowed.
    """
    names = _Parser(add_help=False, allow_abbrev=False)
    _add(names, [Flag(key, "", "", "") for key in (*GRID_KEYS, "loss", "resume")])
    chosen, _ = names.parse_known_args(arguments)
    algorithms = [] if chosen.resume else _algorithms(vars(chosen))
    parser = _full_parser(algorithms)
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].split("=")[0]
        near = difflib.get_close_matches(flag, [f"--{key}" for key in (*vars(known), *FORMER_KEYS)], n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(f"{unknown[0]}: unknown flag{hint}; see --help")
    values = {key: value for key, value in vars(known).items() if key != "list" and value is not None}
    texts, trials = values.pop("search", []), values.pop("trials", None)
    if "resume" in values:
        if texts:
            raise UserError(f"search: {texts[0]!r} is not allowed with resume, which takes the folder's")
        if search := resumed_search(values, trials):
            return search
    if trials and not texts:
        raise UserError(f"trials: {trials!r} is not used without search")
    if "resume" in values:
        return [resumed(values)]
    axes = _axes(values)
    for key, axis in zip(GRID_KEYS, axes, strict=True):
        if len({short(name) for name in axis}) < len(axis):
            raise UserError(f"{key}: {','.join(axis)!r} is not allowed; expected no value twice")
    own = (("loss", LOSS.names), ("model", MODELS))
    values |= {key: absolute(values[key], built_in) for key, built_in in own if key in values}
    cells = [dict(zip(GRID_KEYS, map(absolute, cell), strict=True)) for cell in product(*axes)]
    if texts:
        if several := [key for key, axis in zip(GRID_KEYS, axes, strict=True) if len(axis) > 1]:
            raise UserError(f"{several[0]}: {values[several[0]]!r} is a grid, and search is for one run")
        cell = {key: name for key, name in cells[0].items() if key in values}
        return new_search({**values, **cell}, texts, trials)
    return list(dict.fromkeys(RunConfig.grid(values, cells)))  # a reference is the same in many cells


def _axes(values: Mapping[str, str | None]) -> list[list[str]]:
    """The values of each of `GRID_KEYS`."""
    given = ((values.get(key), OWN_KEYS[key].default) for key in GRID_KEYS)
    texts = (str(default) if text is None else text for text, default in given)
    return [[part.strip() for part in text.split(",")] for text in texts]


def _algorithms(names: Mapping[str, str | None]) -> list[Named]:
    """Every algorithm that the grid names."""
    cells = product(*_axes(names)[:-1])
    loss = {"loss": names["loss"]} if names.get("loss") else {}
    found = (a for cell in cells for a in named(dict(zip(GRID_KEYS, cell, strict=False)) | loss))
    return list(dict.fromkeys(found))


# ---- flags and their help ---------------------------------------------------------------------------


def _full_parser(algorithms: Iterable[Named]) -> _Parser:
    """Flags of the named algorithms first, then common ones, then those of the other algorithms."""
    parser = _Parser(
        usage="%(prog)s [--KEY VALUE ...]",
        description="Simulate federated learning: any server rule with any BatchNorm policy.",
        epilog=f"A comma in --{', --'.join(GRID_KEYS)} makes a grid: one table.",
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="show every name and exit")
    parser.add_argument(
        "--search",
        action="append",
        metavar="KEY=VALUES",
        help=f"a number or name to be searched on the validation share, may be repeated; {FORM}",
    )
    parser.add_argument(
        "--trials",
        action=_Once,
        metavar="VALUE",
        help=f"runs of a search [{TRIALS}]; a whole number >= 1",
    )
    seen: set[str] = set()
    algorithms = sorted(algorithms, key=lambda a: ALGORITHM_KEYS.index(a.kind))
    groups = {f"{a.kind} {short(a.name)}": flags_of(a.cls) for a in algorithms}
    for title, flags in (groups | inherited_flags() | common_flags()).items():
        _add(parser.add_argument_group(title), [flag for flag in flags if flag.key not in seen])
        seen |= {flag.key for flag in flags}
    others = parser.add_argument_group("Settings of other algorithms")
    for registry in REGISTRIES:
        for name, cls in registry.names.items():
            _add(others, [flag for flag in flags_of(cls) if flag.key not in seen], f"{registry.key} {name}: ")
            seen |= {flag.key for flag in flags_of(cls)}
    return parser


def _add(parser: argparse._ActionsContainer, flags: Iterable[Flag], whose: str = "") -> None:
    for flag in flags:
        former = [f"--{old}" for old, new in FORMER_KEYS.items() if new == flag.key]
        parser.add_argument(
            f"--{flag.key}",
            *former,
            dest=flag.key,
            action=_Once,
            metavar="VALUE",
            help=f"{whose}{flag.meaning} [{flag.default}]; {flag.allowed}".replace("%", "%%"),
        )
