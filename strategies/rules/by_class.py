"""Rules that use information by class.

FedProto: Tan et al. 2022, "FedProto: Federated Prototype Learning" (arXiv 2105.00243).
FedSat: struggle-aware aggregation; needs the local objective ``fedsat``.
"""

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import (
    FEATURE_SUMS,
    KNOWN,
    NUM_EXAMPLES,
    PROTOTYPES,
    SCORES,
    SHARES,
    STRUGGLE,
)

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy
from ..messages.gate import ReplyRefused, record_of
from ..messages.npy import encoded
from ..messages.validation import Answer, Range, check_arrays
from .averaging import FedAvg

LARGEST_FEATURE = 1e6
ROUNDED = 0.999  # shares are float32


class FedProto(FedAvg):
    """FedAvg, and a mean feature for every class, its prototype: ``sum_i p_i sums_i / sum_i p_i shares_i``.

    It needs the local objective ``fedproto``, whose answers have an ArrayRecord ``prototypes``. ``sums`` are
    a client's features summed by class, over its number of examples. ``shares`` are the classes' shares of
    its examples. Weighted by examples, the prototype is the mean over all examples of the class. This is
    equation 6 without its 1/|N_j|, which would shrink prototypes with the number of clients.

    A class that no client had in a round keeps its prototype. The prototypes are sent in a record of the same
    name once there are any. The model may stay at the clients.

    An answer is refused if a positive share is less than one example, if a class with share 0 has features,
    or if a mean feature is above `LARGEST_FEATURE`.
    """

    purpose = "Shares a mean feature of each class, so that clients' models may differ."
    helps = ("personal-models", "label-skew")
    paper = "tan2022fedproto"

    requires = {"objective": {"fedproto"}, "mean": {"weighted"}}  # noqa: RUF012
    goes_without_model = True

    num_classes: int | None = setting(
        None, gt=0, exclude=True, description="number of classes; None to take it from the first answer"
    )
    num_features: int | None = setting(
        None, gt=0, exclude=True, description="length of a feature; None to take it from the first answer"
    )

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        arrays = {name: state.vectors[name] for name in (PROTOTYPES, KNOWN) if name in state.vectors}
        return {PROTOTYPES: ArrayRecord({n: encoded(a) for n, a in arrays.items()})} if arrays else {}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        record = record_of(answer.content, PROTOTYPES, ArrayRecord)
        arrays = check_arrays(record, self._expected(), {SHARES: Range(0, 1)})
        sums, shares = (arrays.get(name, np.empty(0)) for name in (FEATURE_SUMS, SHARES))
        if sums.ndim != 2 or shares.shape != sums.shape[:1] or not len(shares):
            raise ReplyRefused(
                f"{PROTOTYPES}: {FEATURE_SUMS!r} is {sums.shape}, {SHARES!r} is {shares.shape}", "shape"
            )
        if shares.sum() > 1.001:
            raise ReplyRefused(f"{PROTOTYPES}: {SHARES!r} must sum to at most 1")
        present, examples = shares > 0, answer.metrics.get(NUM_EXAMPLES)
        if isinstance(examples, int | float) and np.any(shares[present] < ROUNDED / examples):
            raise ReplyRefused(f"{PROTOTYPES}: {SHARES!r} has less than one of {examples} examples")
        bound = np.where(present, LARGEST_FEATURE, 0) * shares.astype(np.float64)
        if np.any(np.abs(sums) > bound[:, None]):
            raise ReplyRefused(f"{PROTOTYPES}: a mean feature above {LARGEST_FEATURE:.0e}")
        known = self.rule_state.vectors.get(PROTOTYPES, sums)
        if sums.shape != known.shape:
            raise ReplyRefused(f"{PROTOTYPES}: shape {sums.shape}, expected {known.shape}", "shape")
        return Extras(
            vectors={FEATURE_SUMS: sums.astype(np.float64).ravel(), SHARES: shares.astype(np.float64)}
        )

    def _expected(self) -> dict[str, NDArray] | None:
        if self.num_classes is None or self.num_features is None:
            return None
        return {
            FEATURE_SUMS: np.zeros((self.num_classes, self.num_features)),
            SHARES: np.zeros(self.num_classes),
        }

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        shares = round.means[SHARES]
        sums = round.means[FEATURE_SUMS].reshape(len(shares), -1)
        seen = shares > 0
        prototypes = state.vectors.setdefault(PROTOTYPES, np.zeros(sums.shape, np.float32))
        prototypes[seen] = sums[seen] / shares[seen, None]
        known = state.vectors.setdefault(KNOWN, np.zeros(len(shares), np.float32))
        known[seen] = 1
        return super().server_step(delta, state, round)


KEPT = "kept"


class FedSat(PseudoGradientStrategy):
    """``x += eta mean_{c in P} sum_k w_k^c (x_k - x)``, ``w_k^c`` proportional to ``max(0, 1 - S_k[c])``.

    S_k[c] in [0, 1] is the struggle score of client k on class c, in an ArrayRecord ``struggle`` of its
    answer. P are the ``top_p`` classes of the greatest ``mean_k S_k``. If all weights of a class are 0, all
    clients have equal weight, as they always have for BatchNorm statistics.

    P is known only after all answers, so a sum is kept for every class: the memory of one model per class.
    """

    purpose = "Favours clients that are good at the classes that others get wrong."
    helps = ("label-skew",)
    paper = "chowdhury2024fedsat"

    requires = {"objective": {"fedsat"}, "mean": {"weighted"}, "clip-update-norm": {0.0}}  # noqa: RUF012
    weighs_alike = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    top_p: int = setting(
        3,
        ge=1,
        description="number of classes used, those with the highest struggle; all if there are fewer",
    )
    num_classes: int | None = setting(
        None,
        gt=0,
        exclude=True,
        description="number of scores in an answer; None to take it from the first answer",
    )

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        record = record_of(answer.content, STRUGGLE, ArrayRecord)
        expected = {SCORES: np.zeros(self.num_classes)} if self.num_classes else None
        scores = check_arrays(record, expected, {SCORES: Range(0, 1)}).get(SCORES, np.empty(0))
        if scores.ndim != 1 or not len(scores):
            raise ReplyRefused(f"{STRUGGLE}: {SCORES!r} must be numbers in [0, 1], one per class")
        kept = 1 - scores.astype(np.float64)
        x, x_k = (round.layout.flatten_parameters(arrays) for arrays in (round.sent, answer.arrays))
        difference = x_k - x
        by_class = {f"class-{c}": difference * difference.dtype.type(weight) for c, weight in enumerate(kept)}
        return Extras(vectors={KEPT: kept, **by_class})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        kept = round.means[KEPT]
        chosen = np.argsort(kept, kind="stable")[: self.top_p]
        step = np.zeros_like(delta)
        for c in chosen:
            step += round.means[f"class-{c}"] / kept[c] if kept[c] > 0 else delta
        return step * (self.eta / len(chosen))
