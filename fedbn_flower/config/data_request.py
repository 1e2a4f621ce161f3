"""The dataset that a run's keys request, and the number of its natural clients."""

from contextlib import suppress

import numpy as np

from fedbn_flower.clients import Problem

from ..core.errors import UserError
from ..data import MADE, Dataset, Request, cache_folder, load_dataset
from ..data.dataset import GROUP_KEY
from ..data.readers.digits import SCANNERS
from ..data.readers.digits import SITES as SCANNED
from ..data.readers.own_function import is_function, load_returned
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
        return load_returned(request, DATASET.find(request.name), cache)


def request_of(config: RunConfig, data_path: str = "") -> Request:
    """Return a run's request for its dataset, or for that in a SuperNode's ``data_path``."""
    name, shape = data_path or config.dataset, InputSpec.parse(config.dataset)
    made = name.startswith(tuple(MADE))
    return Request(
        name,
        config.image_column,
        config.label_column,
        config.image_size,
        "" if data_path else config.partitioning.column,
        clients=config.num_clients if made else 0,
        seed=config.seed if made else 0,
        feature_shift=config.feature_shift,
        predict=_predict(config, shape),
        columns=config.columns,
        missing_values=config.missing_values,
        of_site=bool(data_path),
        unit_column=config.group_column or config.dp_unit,
        unit_key=GROUP_KEY if config.group_column else Request.unit_key,
        split_by=config.split_by,
        joined=bool(config.folds),
        private=config.dp != "none" and not data_path,
        predict_by=_predict_by(config, shape),
        spacing=config.spacing,
        window=config.window,
        subgroups=config.subgroups,
        encoding=config.encoding,
        decimal=config.decimal,
        thousands=config.thousands,
        header_row=config.header_row,
        date_format=config.date_format,
    )


def _predict_by(config: RunConfig, shape: InputSpec | None) -> tuple[str, str] | None:
    """The key, other than ``predict``, that determines how a table's labels are read."""
    if config.predict != NOT_GIVEN or (config.problem == NOT_GIVEN and not shape):
        return None
    return (DATASET.key, config.dataset) if shape else (PROBLEM.key, config.problem)


def _predict(config: RunConfig, shape: InputSpec | None) -> str:
    """How a table's labels are read: by the keys, the shape, or the problem."""
    if config.predict != NOT_GIVEN:
        return config.predict
    if shape:
        return shape.predicts
    return predicted_by(None if config.problem == NOT_GIVEN else PROBLEM.find(config.problem))


def predicted_by(problem: type[Problem] | None) -> str:
    """Return a problem's value of `Request.predict`; ``auto`` if it allows both."""
    return problem.learns if problem and problem.learns in ("classes", "numbers") else NOT_GIVEN
