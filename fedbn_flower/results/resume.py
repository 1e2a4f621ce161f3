"""Going on with a run that was stopped."""

from collections.abc import Collection, Mapping
from pathlib import Path

from flwr.app import UserConfigValue

from ..config.keys import OWN_KEYS
from ..config.registry import absolute
from ..config.run_config import RunConfig
from ..config.selection import NAMED
from ..core.command_line import command
from ..core.errors import UserError, not_allowed
from ..core.session_objects import is_own
from ..federation.federation import Federation
from ..records.checkpoint import Checkpoint
from ..records.totals import RunTotals
from .checkpoints.checkpoint_folder import BEST, LAST, CheckpointFolder
from .earlier import check_version
from .manifest import CONFIG, EXPERIMENT, NOT_KEYS, described, stored_configuration, stored_facts

MAY_CHANGE = frozenset(
    {
        "rounds", "backend", "workers", "verbose", "checkpoint-every", "cache-dir", "round-timeout",
        "node-timeout", "tensorboard",
    }
)  # fmt: skip
"""Keys that a resumed run may be given anew."""


def checkpoints_of(config: RunConfig) -> CheckpointFolder:
    """The checkpoints of the run that ``resume`` names: of its two folders the one with the later round."""
    return max(
        (CheckpointFolder(Path(config.resume) / name) for name in (LAST, BEST)),
        key=CheckpointFolder.last_round,
    )


def load_checkpoint(config: RunConfig, clients_here: bool) -> Checkpoint | None:
    """The checkpoint that the run goes on from; None if it was stopped before its first.

    Parameters
    ----------
    config : RunConfig
        With ``resume``.
    clients_here : bool
        Whether clients' memories are in the checkpoint (`run_sim.py`) or with the SuperNodes.

    Raises
    ------
    UserError
        When it cannot be read, was made in the other way, or no round is left to do, by patience or number.
    """
    checkpoint = checkpoints_of(config).load()
    if checkpoint is None:
        return None
    if (checkpoint.signature is not None) != clients_here:
        made, here = ("run_sim.py", "flwr run")[:: 1 if clients_here else -1]
        raise not_allowed("resume", config.resume, f"a run of {made}; this is one of {here}")
    if stopped_early(checkpoint):
        told = f"a run that did not end early, as this one did after {checkpoint.server_round} rounds"
        raise not_allowed("resume", config.resume, told)
    if checkpoint.server_round == config.rounds:
        raise UserError(
            f"resume: the run in {config.resume!r} is complete: all {config.rounds} rounds are done "
            "(more with --rounds N; fedbn-sim report DIR writes its report anew)"
        )
    if checkpoint.server_round > config.rounds:
        raise not_allowed("rounds", config.rounds, f"more than the {checkpoint.server_round} done so far")
    return checkpoint


def stopped_early(checkpoint: Checkpoint) -> bool:
    """Whether the run ended with this round, though it was not its last."""
    return bool(RunTotals(**checkpoint.counters.get("account", {})).stopped)


def resumed(values: Mapping[str, UserConfigValue]) -> RunConfig:
    """The configuration of the run that ``resume`` names; a few keys may be given anew.

    An object of one's own must be given anew, where the run was made with one. Code that the folder names is
    run: to go on with a run is to ask for it.

    Raises
    ------
    UserError
        For a key that may not, or when there is no such run, or it is too old.
    """
    folder = Path(str(values["resume"]))
    check_version(folder, "resume")
    stored = stored_configuration(folder)
    again = {key for key, value in values.items() if is_own(str(value)) and is_own(str(stored.get(key)))}
    same = {k for k, v in values.items() if k in NAMED and absolute(str(v), NAMED[k]) == stored.get(k)}
    check_may_change(values, again | same | {"resume"})
    anew = {key: value for key, value in values.items() if key not in same}
    return RunConfig.of(stored | anew | {"run-dir": str(folder)})


def check_may_change(values: Mapping[str, UserConfigValue], also: Collection[str]) -> None:
    """Refuse to be given anew, with ``resume``, what is the folder's.

    Raises
    ------
    UserError
        For a key that is neither one of `MAY_CHANGE` nor of these.
    """
    if fixed := values.keys() - MAY_CHANGE - set(also):
        raise UserError(
            f"{min(fixed)}: {values[min(fixed)]!r} is not allowed with resume, which takes the run folder's; "
            f"expected only {', '.join(sorted(MAY_CHANGE))}"
        )


def check_data(federation: Federation) -> None:
    """Refuse to go on with other data than the run was made with.

    Raises
    ------
    UserError
        When their digests differ.
    """
    config = federation.config
    if stored_facts(Path(config.resume), "resume").get("data") != federation.dataset.digest:
        raise UserError(f"resume: {config.dataset!r} no longer holds the data that the run was made with")


def check_unchanged(federation: Federation) -> None:
    """Refuse to go on with another configuration than the run was made with; a key that the version which
    made it did not have counts as its default.

    Raises
    ------
    UserError
        For the first key that differs, but for those of `MAY_CHANGE`; when the run is too old.
    """
    config = federation.config
    check_version(Path(config.resume), "resume")
    check_data(federation)
    defaults = {key: field.default for key, field in OWN_KEYS.items()}
    stored = {**defaults, **stored_configuration(Path(config.resume))}
    for key, value in described(federation).items():
        if key not in MAY_CHANGE | {"resume", "run-dir", *NOT_KEYS} and stored.get(key) != value:
            raise not_allowed(key, value, f"{stored.get(key)!r}, as in the run to resume")


def how_to_go_on(folder: Path) -> str:
    """Where a run or a sweep is that was stopped, and the command that goes on with it; empty before it has
    begun."""
    if not any((folder / name).exists() for name in (CONFIG, EXPERIMENT)):
        return ""
    again = command(["--resume", str(folder)])
    return f"interrupted; what was done so far is in {folder}; to go on with it: {again}"
