"""Resume a run that was stopped, and how much of one its folder has."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.app import UserConfigValue

from ..config.keys import RUN_KEYS
from ..config.making import run_config
from ..config.named_algorithms import flags, named, names_code, with_full_paths
from ..config.run_config import RunConfig
from ..config.schedules import Schedule
from ..core.errors import UserError, not_allowed
from ..core.free_memory import regular
from ..core.session_objects import is_session_name
from ..core.stored import CONFIG, EXPERIMENT, damage_as_user_errors
from ..core.text import command, joined, number_of
from ..job.checks.unused_keys import has_statistics
from ..job.inputs import RunInputs
from ..privacy.private_run import against_server
from ..records.checkpoint import Checkpoint, RunTotals
from ..records.summary import Summary
from ..server.federation import Federation
from .checkpoints.checkpoint_folder import BEST, LAST, CheckpointFolder
from .manifest import NOT_KEYS, build_manifest, code_digests, read_configuration, read_manifest
from .summary import normalization

LOGGER = logging.getLogger("flwr.fedbn")

MAY_CHANGE = frozenset(
    {
        "rounds", "backend", "workers", "verbose", "checkpoint-every", "cache-dir", "round-timeout",
        "node-timeout", "track", "init", "keep-memories", "evaluate-with-training",
    }
)  # fmt: skip
"""Keys that may change when a run is resumed."""

DONE = ".done"
"""The file that marks a completed run of a sweep; a failed run may have reached its last round too."""


def as_before(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with what runs without a key did, where that is not its default."""
    clients = stored.get("eval-model") == "local" or float(stored.get("fraction-evaluate", 1)) > 0
    reported = clients and not against_server(stored)
    return {"frozen-bn": "adapt", "decide-by": "pooled" if reported else "auto", **stored}


def checkpoints_of(config: RunConfig) -> CheckpointFolder:
    """Return the checkpoints of the run that ``resume`` names: the folder with the later round of two."""
    return max(
        (CheckpointFolder(Path(config.resume) / name) for name in (LAST, BEST)),
        key=CheckpointFolder.last_round,
    )


def load_checkpoint(config: RunConfig, clients_here: bool) -> Checkpoint | None:
    """Return the checkpoint from which to resume, or None if the run stopped before its first.

    Parameters
    ----------
    config : RunConfig
        With ``resume``.
    clients_here : bool
        Whether the clients' memories are in the checkpoint (`run_sim.py`) or on the SuperNodes.

    Raises
    ------
    UserError
        When the checkpoint cannot be read, is of the other kind, or no round is left: the run is complete or
        ended by itself.
    """
    checkpoint = checkpoints_of(config).load()
    if checkpoint is None:
        return None
    if (checkpoint.signature is not None) != clients_here:
        expected, found = ("run_sim.py", "flwr run")[:: 1 if clients_here else -1]
        raise not_allowed("resume", config.resume, f"a run of {expected}; this one was made by {found}")
    if reason := why_stopped(checkpoint):
        done = f"after {number_of(checkpoint.server_round, 'round')} ({reason})"
        raise not_allowed("resume", config.resume, f"a run that did not end by itself; this one did, {done}")
    if checkpoint.server_round == config.rounds:
        raise UserError(
            f"resume: the run in {config.resume!r} is complete, with {number_of(config.rounds, 'round')} "
            "(use --rounds N for more; fedbn-sim report DIR rewrites its report)"
        )
    if checkpoint.server_round > config.rounds:
        raise not_allowed("rounds", config.rounds, f"more than the {checkpoint.server_round} done so far")
    return checkpoint


def why_stopped(checkpoint: Checkpoint) -> str | None:
    """Return why no round is to follow on this one, if an extension said so."""
    return RunTotals.of(checkpoint.counters.get("account", {})).stopped


def resumed(values: Mapping[str, UserConfigValue]) -> RunConfig:
    """Return the configuration of the run that ``resume`` names; the keys in `MAY_CHANGE` may be changed,
    and what is given as it was is no change.

    If the run was given a Python object, it must be given again. Code that the folder names is run: who
    resumes a run asks for it.

    Raises
    ------
    UserError
        For a key that may not be changed, or when there is no such run.
    """
    folder = Path(str(values["resume"]))
    stored = as_before(read_configuration(folder))
    objects = {
        key
        for key, value in values.items()
        if is_session_name(str(value)) and is_session_name(str(stored.get(key)))
    }
    same = {
        key
        for key, value in values.items()
        if stored.get(key) in (value, with_full_paths(key, str(value)) if names_code(key) else value)
    }
    check_may_change(values, objects | same | {"resume"})
    changed = {key: value for key, value in values.items() if key not in same}
    return run_config(stored | changed | {"run-dir": str(folder)})


def check_may_change(values: Mapping[str, UserConfigValue], also: Collection[str]) -> None:
    """Refuse keys that, with ``resume``, are fixed by the folder.

    Raises
    ------
    UserError
        For a key that is neither in `MAY_CHANGE` nor in ``also``.
    """
    if fixed := values.keys() - MAY_CHANGE - set(also):
        raise is_fixed(min(fixed), values[min(fixed)], MAY_CHANGE)


def is_fixed(key: str, value: object, changeable: Collection[str]) -> UserError:
    """Return the error for a key that the folder to resume has, and that must not change."""
    names = ", ".join(sorted(changeable))
    return not_allowed(key, value, f"with resume only {names}; the folder has the other keys")


def check_data(federation: Federation) -> None:
    """Refuse to resume a run on other data, or from other weights, than it was started with.

    Code of the user's that has changed since is warned of: a mistake may have been mended.

    Raises
    ------
    UserError
        When the digests differ.
    """
    config = federation.config
    manifest = read_manifest(Path(config.resume), "resume")
    if manifest.get("data") != federation.dataset.digest:
        raise UserError(f"resume: {config.dataset!r} no longer holds the data that the run was started with")
    weights = federation.inputs.initial().weights
    if manifest.get("weights", {}).get("digest") != (weights.digest if weights else None):
        raise UserError(f"init: {config.init!r} does not hold the weights that the run was started with")
    summary, scale = Summary.read(Path(config.resume), "resume"), normalization(federation)
    if summary and summary.normalization and scale and summary.normalization != scale:
        why = "an earlier version counted the rows of clients that do not train, too; begin it anew"
        raise UserError(f"resume: {config.resume!r} standardises its inputs by other numbers than now: {why}")
    before = manifest.get("code", {})
    for file, digest in code_digests(config).items():
        if before.get(file, digest) != digest:
            LOGGER.warning("resume: %s has changed since the run was started; the new code is used", file)


def warn_of_rounds(inputs: RunInputs, done: int) -> None:
    """Say what goes by ``rounds``, if there are now others: then the run is no longer one from the start."""
    config = inputs.config
    before = read_configuration(Path(config.resume)).get("rounds", config.rounds)
    found = [f"{key} {value!r}" for key, value in _going_by_rounds(inputs)]
    if done == before and done % config.evaluate_every:
        found.append(f"evaluate-every {config.evaluate_every}")
    if before != config.rounds and found:
        LOGGER.warning(
            "resume: %s went by rounds %d up to round %d, and from now on by rounds %d: "
            "from the start the run would have been another",
            *(joined(found), before, done, config.rounds),
        )


def _going_by_rounds(inputs: RunInputs) -> Iterator[tuple[str, UserConfigValue]]:
    """The keys and values by which what a round does depends on how many there are."""
    values = inputs.config.to_user_config()
    for key in ("client-lr-schedule", "server-lr-schedule"):
        if Schedule.parse(str(values[key])).goes_by_rounds:
            yield key, values[key]
    for one in named(values):
        if "rounds" in flags(one.cls) and not values.get("fix-from") and has_statistics(inputs):
            yield one.kind, one.name


def check_unchanged(federation: Federation) -> None:
    """Refuse to resume a run with another configuration than it was started with.

    A key that the version of the run did not have counts as its default.

    Raises
    ------
    UserError
        For the first key that differs and is not in `MAY_CHANGE`.
    """
    config = federation.config
    check_data(federation)
    defaults = {key: field.default for key, field in RUN_KEYS.items()}
    stored = {**defaults, **read_configuration(Path(config.resume))}
    for key, value in build_manifest(federation).items():
        if key not in MAY_CHANGE | {"resume", "run-dir", *NOT_KEYS} and stored.get(key) != value:
            raise not_allowed(key, value, f"{stored.get(key)!r}, as in the run to resume")


def resume_hint(folder: Path) -> str:
    """Return where the results of a stopped run or sweep are and the command that resumes it.

    Empty if it had not begun.
    """
    if not any((folder / name).exists() for name in (CONFIG, EXPERIMENT)):
        return ""
    again = command(["--resume", str(folder)])
    return f"interrupted; what was done so far is in {folder}; to go on with it: {again}"


@dataclass(frozen=True)
class RunToDo:
    """A run and its folder, in which it may have begun.

    Parameters
    ----------
    name : str
        The name of its folder.
    config : RunConfig
        Its configuration; ``run-dir`` is its folder.
    """

    name: str
    config: RunConfig

    @property
    def folder(self) -> Path:
        return Path(self.config.run_dir)

    @cached_property
    def started(self) -> bool:
        """Whether its folder has a run that can be resumed."""
        return (self.folder / CONFIG).exists()

    @property
    def rounds_done(self) -> int:
        """The number of rounds in ``metrics.csv``."""
        metrics = self.folder / "metrics.csv"
        if not metrics.exists():
            return 0
        with damage_as_user_errors("resume", self.folder):
            return max(0, regular(metrics).read_bytes().count(b"\n") - 1)

    @property
    def summary(self) -> Summary | None:
        """The summary of a completed run with all its rounds, else None."""
        if not (self.folder / DONE).exists():
            return None
        summary = Summary.read(self.folder, "resume")
        done = summary and (summary.rounds >= self.config.rounds or summary.stopped)
        return summary if done else None
