"""FedTAN: Wang et al. 2023, "Why Batch Normalization Damage FL on Non-IID Data?" (arXiv 2301.02983)."""

from collections.abc import Mapping, Set
from functools import partial

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import BATCH_GRADIENT, BATCH_SHARES, BATCH_STATISTICS, BATCH_WEIGHT

from ..aggregation.fold import Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..asking import Ask, AsksFirst
from ..messages.gate import ReplyRefused
from ..messages.npy import encoded
from ..messages.validation import MAX_WEIGHT, Range

MOST_CALLS = 100
"""Of each BatchNorm layer in a pass: it bounds the questions of a round, as clients say what is next."""


class FedTAN(AsksFirst):
    """``x += eta D``, with BatchNorm statistics and gradients shared across all clients' first batches.

    It needs the local objective ``fedtan``. For each of L BatchNorm layers, from the first to the last, the
    round's clients are asked for the means of its inputs and then for their variances; from the last to the
    first, for the gradients of the loss by both. With the training these are 3 L + 1 exchanges a round. Each
    question has the model and what is known so far, so a client keeps nothing between them and says itself
    what comes next.
    """

    purpose = "FedAvg whose first local step is that of BatchNorm over all clients' batches, layer by layer."
    helps = ("label-skew", "feature-shift")
    paper = "wang2023fedtan"

    requires = {  # noqa: RUF012
        **AsksFirst.requires,
        "objective": {"fedtan"},
    }
    in_simulations_only = True
    first_question = BATCH_STATISTICS

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * delta

    def first_records(self, round: Round, ask: Ask) -> Mapping[str, ArrayRecord] | None:
        known: dict[str, NDArray] = {}
        while True:
            comes_next = partial(_expected, known, round.sent)
            found = ask(
                comes_next, np.dtype(np.float64), _record(known), {BATCH_SHARES: Range(0, MAX_WEIGHT)}
            )
            if found is None:
                return None
            answers = dict(found.mean)
            shares = np.maximum(answers.pop(BATCH_SHARES), 1 / MAX_WEIGHT)  # clients divide by some of them
            known |= {BATCH_SHARES: shares, BATCH_WEIGHT: np.array([found.weight])}
            for name, mean in answers.items():
                value = mean if name.endswith(BATCH_GRADIENT) else mean / shares[0]
                known[name] = value.astype(_entry(name, round.sent).dtype)
            gradients = [name for name in known if name.endswith(BATCH_GRADIENT)]
            if not answers or 2 * len(gradients) == len(known) - 2:
                return _record(known)


def _record(known: Mapping[str, NDArray]) -> dict[str, ArrayRecord]:
    return {BATCH_STATISTICS: ArrayRecord({name: encoded(array) for name, array in known.items()})}


def _expected(
    known: Mapping[str, NDArray], sent: Mapping[str, NDArray], names: Set[str]
) -> dict[str, NDArray]:
    """Return the expected arrays of an answer.

    Raises
    ------
    ReplyRefused
        When one is neither a statistic of a layer nor a gradient by one, or is known already; when they
        belong to more than one call of a layer, or to more than `MOST_CALLS` calls of each.
    """
    found = {name: np.zeros_like(_entry(name, sent)) for name in sorted(names - {BATCH_SHARES})}
    calls = MOST_CALLS * sum(name.endswith("running_var") for name in sent)
    for name in found:
        of, call = name.removesuffix(BATCH_GRADIENT), name.partition(":")[0]
        is_call = call.isdecimal() and str(int(call)) == call and int(call) < calls
        if not is_call or len(found) > 2 or name in known or (of != name and of not in known):
            raise ReplyRefused(f"{name}: not what comes next", "names")
    return {BATCH_SHARES: np.zeros(2), **found}


def _entry(name: str, sent: Mapping[str, NDArray]) -> NDArray:
    """Return the running statistic of which an array is the counterpart: ``CALL:ENTRY[.gradient]``."""
    entry = name.partition(":")[2].removesuffix(BATCH_GRADIENT)
    if not entry.endswith(("running_mean", "running_var")) or entry not in sent:
        raise ReplyRefused(f"{name}: no statistic of the model", "names")
    return sent[entry]
