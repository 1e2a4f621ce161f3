"""Whose held-out examples clients are evaluated on, and why; and their halves, for cross-fitting."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed
from ..core.ground.columns import HALVES
from ..core.process_cache import process_cache
from ..core.text import listed
from ..data.notes import TESTED_ON, Note
from ..data.partition.shares import Shares
from ..data.splits.folds import folds_of_clients
from ..names import CLIENT, STRATEGY

if TYPE_CHECKING:
    from .inputs import RunInputs

MAX_SHOWN = 20


class TestedOn(NamedTuple):
    """Whether each client is evaluated on its own held-out examples, and why; no reason if it was set
    explicitly.
    """

    locally: bool
    why: str = ""

    @property
    def eval_data(self) -> str:
        """The value of ``eval-data`` that this is."""
        return "local" if self.locally else "global"

    @property
    def note(self) -> Note:
        """The line shown before the first round."""
        text = f"{TESTED_ON} {'its own' if self.locally else 'all'} test examples"
        if not self.why:
            return Note("examples", text)
        return Note("examples", f"{text}, since {self.why}", "eval-data")


def tested_on(inputs: RunInputs) -> TestedOn:
    """Return which held-out examples clients are evaluated on.

    ``auto`` is local if clients are sites, or if models are personal, and so not meant for other clients'
    examples. Clients without held-out examples are then not evaluated.
    """
    config = inputs.config
    if not inputs.dataset.has_examples or inputs.data_path:
        return TestedOn(True)
    if config.eval_data != "auto":
        return TestedOn(config.eval_data == "local")
    why = _why_locally(inputs)
    if not why:
        return TestedOn(False, "all have one model, and the data name no sites")
    if must_have_held_out(inputs):
        return TestedOn(False, f"{who_lacks(inputs)} none of their own")
    return TestedOn(True, why)


def must_have_held_out(inputs: RunInputs) -> bool:
    """Return whether a run needs local held-out examples from clients that have none.

    So it is if no client has any, the site that is left out has none, or each client evaluates the model that
    it has just trained.
    """
    lacking = frozenset().union(*inputs.without_held_out.values())
    after_training = inputs.config.eval_model == "local"
    every = len(lacking) == inputs.config.num_clients
    return bool(lacking) and (after_training or every or bool(lacking & inputs.held_out_clients))


def untested_note(inputs: RunInputs) -> list[Note]:
    """Return a note on the clients that are not evaluated, if there are any."""
    if not inputs.untested:
        return []
    named = inputs.client_names or range(inputs.config.num_clients)
    clients = listed([f"{named[client]}" for client in sorted(inputs.untested)], MAX_SHOWN)
    return [
        Note("examples", f"clients that train and are not evaluated, without held-out examples: {clients}")
    ]


def who_lacks(inputs: RunInputs) -> str:
    """Return the clients without examples in a held-out split, as the beginning of a sentence."""
    clients = min(inputs.without_held_out.values(), key=min)
    first = inputs.client_names[clients[0]] if inputs.client_names else clients[0]
    return f"{len(clients)} of {inputs.config.num_clients} clients (the first is {first}) have"


def _why_locally(inputs: RunInputs) -> str:
    """Return why a client's model is not meant for other clients' examples; empty if it is."""
    config = inputs.config
    if config.partitioning.kind == "natural":
        return "clients are sites"  # decided without building a model
    standardised = config.normalize or inputs.prepares_publicly
    reasons = {
        f"client {config.client!r} keeps a part of the model at home": inputs.local_names
        or CLIENT.find(config.client).remembers,
        f"strategy {config.strategy!r} keeps several models": STRATEGY.find(config.strategy).keeps_models,
        "each first trains or adapts the model": config.fine_tune or config.adapt_bn,
        "each evaluates the model that it has trained": config.eval_model == "local",
        "each standardises by its own rows": inputs.dataset.kind.prepares_by_client and not standardised,
    }
    return next((why for why, holds in reasons.items() if holds), "")


if TYPE_CHECKING:
    from .inputs import RunInputs

Rows = NDArray[np.int64]


def half_of(inputs: RunInputs, rows: Rows, half: str) -> Rows:
    """Return the given test rows, of a client or of all, that are in a half (see `HALVES`).

    Each client's rows are halved separately, stratified by outcome, keeping groups together. A group of
    several clients is in the same half at all of them.

    Raises
    ------
    UserError
        For ``best``, when a client has fewer than two examples or groups.
    """
    numbers = _halved(inputs, Shares.of([rows])) if inputs.data_path else _halves(inputs)
    kept: Rows = rows[numbers[rows] == HALVES.index(half)]
    return kept


@process_cache(maxsize=4)
def _halves(inputs: RunInputs) -> Rows:
    shares = inputs.partitions
    return _halved(inputs, shares.test if inputs.evaluates_locally else Shares.of([shares.test_rows]))


def _halved(inputs: RunInputs, shares: Shares) -> Rows:
    """Return the half of each test row, 0 or 1, and -1 for rows that no client has, int64 (N,)."""
    split, config = inputs.dataset.test, inputs.config
    shares = shares if shares.sizes.all() else Shares.of([rows for rows in shares if len(rows)])
    try:
        return folds_of_clients(split.columns["y"], split.units, shares, len(HALVES), config.seed)
    except UserError as error:
        which = str(error).rpartition("the number of ")[2]
        raise not_allowed("best", config.best, f"another one: 1 is the number of test {which}") from None
