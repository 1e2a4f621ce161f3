"""Check the keys that split examples into training and test sets, and those that hold out whole clients."""

from collections.abc import Iterator

from flwr.app import UserConfigValue

from ..core.errors import Conflict, refuse
from ..core.ground.columns import HeldOut
from ..data.splits.groups import pattern_of
from ..data.splits.split_by import SplitBy
from ..data.splits.subgroups import attributes_of
from .run_config import RunConfig

ALL_RUNS = "run_sim.py and experiment files do all of them"


def with_splits(config: RunConfig) -> RunConfig:
    """Return the configuration with the values that its splits imply: which clients are held out, and whose
    examples clients are evaluated on.

    Raises
    ------
    UserError
        When these keys are incompatible, or a value is invalid.
    """
    refuse(_conflicts(config))
    implied = implied_by_splits(config)
    return config.model_copy(update={name.replace("-", "_"): value for name, value in implied.items()})


def implied_by_splits(config: RunConfig) -> dict[str, UserConfigValue]:
    """Return the values of other keys that these imply."""
    implied: dict[str, UserConfigValue] = {"eval-data": "local"} if _of_each_client(config) else {}
    return implied | ({"holdout-clients": 1} if config.leave_one_site_out else {})


def _of_each_client(config: RunConfig) -> HeldOut | None:
    """Return what holds out some or all of each client's own examples; None if nothing does."""
    return HeldOut.FOLDS if config.folds else HeldOut.SITE if config.leave_one_site_out else None


def _conflicts(config: RunConfig) -> Iterator[Conflict]:
    yield from _of_groups(config)
    yield from _of_folds(config)
    if config.leave_one_site_out or config.left_out >= 0:
        yield from _of_left_out(config)
    if (held_out := _of_each_client(config)) and config.eval_data == "global":
        wanted = f"'local' with {held_out.key}: clients are evaluated on their own examples"
        yield Conflict("eval-data", config.eval_data, wanted)


def _of_groups(config: RunConfig) -> Iterator[Conflict]:
    pattern_of("group-column", config.group_column)
    if config.group_column and config.dp_unit not in ("", config.group_column):
        yield Conflict("group-column", config.group_column, f"{config.dp_unit!r}, the dp-unit, or none")
    if config.split_by:
        SplitBy.parse(config.split_by)
    attributes_of(config.subgroups)


def _of_folds(config: RunConfig) -> Iterator[Conflict]:
    folds, fold = config.folds, config.fold
    if folds == 1:
        yield Conflict("folds", folds, "0, or at least 2")
    if fold and not folds:
        yield Conflict("fold", fold, "0 without folds")
    if folds and not 1 <= fold <= folds:
        yield Conflict("fold", fold, f"from 1 to {folds} with folds {folds}; {ALL_RUNS}")
    if folds and config.dp == "example":
        wanted = "0 with dp 'example': which fold a row is in goes by the outcomes of others"
        yield Conflict("folds", folds, wanted)
    if folds and config.split_by:
        yield Conflict("folds", folds, "0 with split-by, which says what is tested on")
    if folds and config.leave_one_site_out:
        yield Conflict("folds", folds, "0 with leave-one-site-out, whose runs are others")


def _of_left_out(config: RunConfig) -> Iterator[Conflict]:
    last = config.num_clients - 1
    if not config.leave_one_site_out:
        yield Conflict("left-out", config.left_out, "-1 without leave-one-site-out")
    if not 0 <= config.left_out <= last:
        wanted = f"from 0 to {last} with leave-one-site-out, since num-clients is {config.num_clients}"
        yield Conflict("left-out", config.left_out, f"{wanted}; {ALL_RUNS}")
    if config.holdout_clients > 1:
        wanted = "0 with leave-one-site-out, which names one"
        yield Conflict("holdout-clients", config.holdout_clients, wanted)
    if not config.clients_report:
        wanted = f"false: with dp {config.dp!r} clients send no metrics without dp-metrics"
        yield Conflict("leave-one-site-out", True, wanted)
