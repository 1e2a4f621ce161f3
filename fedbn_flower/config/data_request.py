"""The dataset that a run's keys request, and the number of its natural clients."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
from flwr.app import UserConfigValue

from fedbn_flower.clients import Problem

from .. import annexes
from ..core.errors import Conflict, UserError
from ..core.ground.columns import HeldOut
from ..data import MADE, Dataset, Request, cache_folder, load_dataset
from ..data.dataset import GROUP_KEY
from ..data.readers.digits import SCANNERS
from ..data.readers.digits import SITES as SCANNED
from ..data.sources import is_function
from ..models import InputSpec
from ..names import DATASET, PROBLEM, as_user_error
from .named_algorithms import NOT_GIVEN
from .run_config import RunConfig

USUAL_CLIENTS = 2


def usual_clients(config: RunConfig) -> int:
    """Return the default of ``num-clients``: the number of natural clients in the data, else 2.

    Data that cannot be read are refused later, when the run reads them.
    """
    if config.dataset == SCANNERS:
        return len(SCANNED)
    made = config.dataset.startswith(tuple(MADE)) or InputSpec.parse(config.dataset)
    if config.partitioning.kind == "natural" and not made:
        with suppress(UserError):
            dataset = load_requested(request_of(config), config.cache_dir)
            if dataset.train.groups is not None:
                return len(np.unique(dataset.train.groups))
    return USUAL_CLIENTS


def load_requested(request: Request, cache_dir: str) -> Dataset:
    """Return the requested dataset, from files or from a user's function.

    Raises
    ------
    UserError
        As `load_dataset` and `load_returned` do.
    """
    cache = cache_folder(cache_dir)
    if not is_function(request.name):
        return load_dataset(request, cache)
    with as_user_error(DATASET.key, request.name):
        load: Callable[..., Dataset] = annexes.load("functions", "returned", DATASET.key)
        return load(request, DATASET.find(request.name), cache)


def request_of(config: RunConfig, data_path: str = "") -> Request:
    """Return a run's request for its dataset, or for that in a SuperNode's ``data_path``."""
    name, shape = data_path or config.dataset, InputSpec.parse(config.dataset)
    made = name.startswith(tuple(MADE))
    predict, predict_by = _predict(config, shape)
    return Request(
        name,
        config.image_column,
        config.label_column,
        config.image_size,
        "" if data_path else config.partitioning.column,
        clients=config.num_clients if made else 0,
        seed=config.seed if made else 0,
        feature_shift=config.feature_shift,
        predict=predict,
        columns=config.columns,
        missing_values=config.missing_values,
        of_site=bool(data_path),
        unit_column=config.group_column or config.dp_unit,
        unit_key=GROUP_KEY if config.group_column else Request.unit_key,
        split_by=config.split_by,
        joined=bool(config.folds),
        private=config.dp != "none" and not data_path,
        predict_by=predict_by,
        spacing=config.spacing,
        window=config.window,
        subgroups=config.subgroups,
        encoding=config.encoding,
        decimal=config.decimal,
        thousands=config.thousands,
        header_row=config.header_row,
        date_format=config.date_format,
    )


def _predict(config: RunConfig, shape: InputSpec | None) -> tuple[str, tuple[str, str] | None]:
    """How a table's labels are read, and the key, other than ``predict``, that says so, with its value."""
    if config.predict != NOT_GIVEN:
        return config.predict, None
    if shape:
        return shape.predicts, (DATASET.key, config.dataset)
    if config.problem == NOT_GIVEN:
        return NOT_GIVEN, None
    return predicted_by(PROBLEM.find(config.problem)), (PROBLEM.key, config.problem)


def predicted_by(problem: type[Problem] | None) -> str:
    """Return a problem's value of `Request.predict`; ``auto`` if it allows both."""
    return problem.learns if problem and problem.learns in ("classes", "numbers") else NOT_GIVEN


ALL_RUNS = "run_sim.py and experiment files do all of them"


def with_splits(config: RunConfig) -> RunConfig:
    """Return the configuration with the values that its splits imply: which clients are held out, and whose
    examples clients are evaluated on; `of_splits` says whether they are compatible.
    """
    implied = implied_by_splits(config)
    return config.model_copy(update={name.replace("-", "_"): value for name, value in implied.items()})


def implied_by_splits(config: RunConfig) -> dict[str, UserConfigValue]:
    """Return the values of other keys that these imply."""
    of_each = bool(_of_each_client(config)) and config.eval_data != "global"
    implied: dict[str, UserConfigValue] = {"eval-data": "local"} if of_each else {}
    held_out = max(1, config.holdout_clients)
    return implied | ({"holdout-clients": held_out} if config.leave_one_site_out else {})


def _of_each_client(config: RunConfig) -> HeldOut | None:
    """Return what holds out some or all of each client's own examples; None if nothing does."""
    return HeldOut.FOLDS if config.folds else HeldOut.SITE if config.leave_one_site_out else None


def of_splits(config: RunConfig) -> Iterator[Conflict]:
    """Yield incompatible keys of the splits."""
    if config.group_column and config.dp_unit not in ("", config.group_column):
        yield Conflict("group-column", config.group_column, f"{config.dp_unit!r}, the dp-unit, or none")
    yield from _of_folds(config)
    if config.leave_one_site_out or config.left_out >= 0:
        yield from _of_left_out(config)
    if (held_out := _of_each_client(config)) and config.eval_data == "global":
        wanted = f"'local' with {held_out.key}: clients are evaluated on their own examples"
        yield Conflict("eval-data", config.eval_data, wanted)


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
    if not last:
        yield Conflict("num-clients", 1, "at least 2 with leave-one-site-out: the others train")
    if not 0 <= config.left_out <= last:
        wanted = f"from 0 to {last} with leave-one-site-out, since num-clients is {config.num_clients}"
        yield Conflict("left-out", config.left_out, f"{wanted}; {ALL_RUNS}")
    if config.holdout_clients > 1:
        wanted = "0 with leave-one-site-out, which names one"
        yield Conflict("holdout-clients", config.holdout_clients, wanted)
    if not config.clients_report:
        wanted = f"false: with dp {config.dp!r} clients send no metrics without dp-metrics"
        yield Conflict("leave-one-site-out", True, wanted)
