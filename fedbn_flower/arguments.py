"""The command line of ``run_sim.py``: every configuration key as a flag; a comma makes a grid."""

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from clients import CLIENTS, OBJECTIVES
from strategies import STRATEGIES

from .config import RunConfig, allowed_values
from .errors import UserError
from .models import MODELS
from .partition_spec import PartitionSpec
from .resume import MAY_CHANGE, stored_configuration

GRID_KEYS = ("strategy", "client", "objective", "seed")


@dataclass(frozen=True)
class Command:
    """What was asked for: a list of names, or one configuration for every cell of the grid."""

    show_names: bool
    configs: list[RunConfig]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse(arguments: Sequence[str]) -> Command:
    """Parse and check the whole command line.

    Raises
    ------
    UserError
        For anything that is not allowed.
    """
    parser = _Parser(
        prog="run_sim.py",
        usage="run_sim.py [--KEY VALUE ...]",
        description="Simulate federated learning: any server rule with any BatchNorm policy.",
        epilog=f"A comma in --{', --'.join(GRID_KEYS)} makes a grid: one table.",
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="show every name and exit")
    flags = ["--list"]
    for name, field in RunConfig.model_fields.items():
        key = name.replace("_", "-")
        flags.append(f"--{key}")
        allowed = allowed_values(key)
        text = f"{field.description} [{field.default}]" + (f"; {allowed}" if allowed != "text" else "")
        parser.add_argument(f"--{key}", metavar="VALUE", help=text.replace("%", "%%"))
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].split("=")[0]
        near = difflib.get_close_matches(flag, flags, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(f"{unknown[0]}: unknown flag{hint}; see --help")
    values = {k.replace("_", "-"): v for k, v in vars(known).items() if k != "list" and v is not None}
    if "resume" in values:
        return Command(known.list, [_resumed(values)])
    axes = [[part.strip() for part in values.get(key, _default(key)).split(",")] for key in GRID_KEYS]
    for key, axis in zip(GRID_KEYS, axes, strict=True):
        if len(set(axis)) < len(axis):
            raise UserError(f"{key}: {','.join(axis)!r} is not allowed; expected no value twice")
    cells = [dict(zip(GRID_KEYS, cell, strict=True)) for cell in product(*axes)]
    return Command(known.list, [RunConfig.of(values | cell) for cell in cells])


def _resumed(values: dict[str, str]) -> RunConfig:
    """The configuration that a run folder was made with; a few keys may be given anew."""
    folder = Path(values["resume"])
    if fixed := values.keys() - MAY_CHANGE - {"resume"}:
        raise UserError(
            f"{min(fixed)}: {values[min(fixed)]!r} is not allowed with resume, which takes the run folder's; "
            f"expected only {', '.join(sorted(MAY_CHANGE))}"
        )
    return RunConfig.of(stored_configuration(folder) | values | {"run-dir": str(folder)})


def _default(key: str) -> str:
    return str(RunConfig.model_fields[key].default)


def print_names(console: Console) -> None:
    """Every name that can be asked for."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for kind, names in (
        ("strategies", ", ".join(STRATEGIES)),
        ("clients", ", ".join(CLIENTS)),
        ("objectives", ", ".join(OBJECTIVES)),
        ("models", ", ".join(MODELS)),
        ("datasets", "digits (embedded), a local folder, or any Hugging Face name"),
        ("partitions", PartitionSpec.FORMS),
    ):
        table.add_row(kind, names)
    console.print(table)
