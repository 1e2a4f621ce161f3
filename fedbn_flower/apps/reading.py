"""Read the folder of an app's run as that of any run."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import UserError
from ..core.ground.columns import GLOBAL
from ..core.stored import CONFIG, damage_as_user_errors, json_object, rows_of, seen
from ..core.text import number_of
from ..records.summary import Summary
from ..results.run_reader import Run, Told
from .app import NODES
from .folder import METRICS
from .results import EVALUATE, SERVER, START, TRAIN, is_number

EARLIER = "history.csv"
"""The table of rounds up to version 0.2."""
OURS = {EVALUATE: "", SERVER: GLOBAL}
"""How columns begin in this project's tables of rounds, by how they begin in an app's."""
CURVES = {
    "": "clients, as the strategy aggregates them",
    GLOBAL: "the server's own evaluation",
    TRAIN: "clients, training, as aggregated",
}


class _Config(BaseModel):
    """What ``config.json`` must have for its readers."""

    model_config = ConfigDict(extra="allow", strict=True)
    app: str
    version: str
    folder: str
    run_config: dict[str, str | bool | int | float] = Field(alias="run-config")
    overrides: dict[str, str | bool | int | float]
    nodes: int = Field(alias="num-supernodes")
    seed: int
    versions: dict[str, str]


def run_of_app(folder: Path, key: str) -> Run:
    """Read the folder; keys of the app's own configuration are called ``run-config.KEY``.

    If several strategies ran in turn, the table is that of the last.

    Raises
    ------
    UserError
        When a file in it is damaged, or an earlier version wrote it; the message begins with the key.
    """
    if (folder / EARLIER).exists():
        raise UserError(f"{key}: {str(folder)!r} is of version 0.2, with {EARLIER}; run the app again")
    found = seen(json_object(folder / CONFIG))
    try:
        config = _Config.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UserError(f"{key}: {str(folder / CONFIG)!r} cannot be read ({why})") from None
    summary = Summary.read(folder, key) or Summary()
    with damage_as_user_errors(key, folder):
        rows = [*rows_of(folder / METRICS)]
        last = [_in_our_names(row) for row in rows if row.get(START) == rows[-1].get(START)]
    apart = ("run-config", "overrides", "version")
    keys = {name: value for name, value in found.items() if name not in apart}
    own = {f"run-config.{name}": value for name, value in config.run_config.items()}
    nodes = number_of(config.nodes, "virtual node")
    told = Told(
        f"{config.app} on {nodes}",
        (f"app {config.app}", nodes),
        _sentence(config, summary),
        _command(config),
        _metrics(last, summary),
        CURVES,
    )
    return Run(folder, {**keys, "dataset": config.app, **own}, summary, last, told=told)


def _in_our_names(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row of the table in this project's names, but for those that mean something else there."""
    named = {}
    for name, cell in row.items():
        side = next((side for side in OURS if name.startswith(side)), "")
        ours = OURS.get(side, "") + name.removeprefix(side)
        is_taken = ours in row or (side == EVALUATE and ours.startswith((TRAIN, GLOBAL)))
        named[name if is_taken else ours] = cell
    return named


def _metrics(rows: Iterable[Mapping[str, str]], summary: Summary) -> list[str]:
    """Return the names of the numbers by round, that by which runs are compared first."""
    names = dict.fromkeys(
        name.removeprefix(next((side for side in (GLOBAL, TRAIN) if name.startswith(side)), ""))
        for row in rows
        for name, cell in row.items()
        if name not in (START, "round") and is_number(cell)
    )
    return sorted(names, key=lambda name: name != summary.compared_by)


def _sentence(config: _Config, summary: Summary) -> str:
    values = ", ".join(f"{key}={json.dumps(value)}" for key, value in config.run_config.items())
    version = f" {config.version}" if config.version else ""
    ran = f"{number_of(config.nodes, 'virtual node')} ran the Flower app {config.app}{version}"
    took = f"The {number_of(summary.rounds, 'round')} took {summary.seconds:.1f} s."
    ended = took if summary.rounds else "It stopped before it wrote a summary."
    return f"{ran}{' with ' if values else ''}{values}; seed {config.seed}. {ended}"


def _command(config: _Config) -> list[str]:
    """Return the words that run a folder's app again; none for objects of Python."""
    if not config.folder:
        return []
    given = " ".join(f"{key}={json.dumps(value)}" for key, value in config.overrides.items())
    return [
        *("fedbn-sim", "app", config.folder),
        *(("--run-config", given) if given else ()),
        *(f"--{NODES}", str(config.nodes), "--seed", str(config.seed)),
    ]
