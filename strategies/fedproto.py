"""FedProto: Tan et al. 2022, "FedProto: Federated Prototype Learning" (arXiv 2105.00243)."""

import numpy as np
from flwr.app import ArrayRecord

from .checks import Answer, ReplyRefused, check_arrays
from .fedavg import FedAvg
from .npy import encoded
from .rounds import Extras, Round
from .state import RuleState
from .vectors import Vector
from .wire import PROTOTYPES

SUMS, SHARES, KNOWN = "sums", "shares", "known"


class FedProto(FedAvg):
    """FedAvg, and a mean feature for every class, its prototype: ``sum_i p_i sums_i / sum_i p_i shares_i``.

    Goes with the local objective of that name, whose answers have an ArrayRecord ``prototypes``: the sums of
    a client's features by class, over how many examples it has, and the classes' shares of them. Weighted by
    examples, this is the mean over all examples of the class (equation 6, but for its 1/|N_j|, by which
    prototypes would shrink with the number of clients). A class that nobody had in a round keeps the
    prototype that it had. They go out in a record of that name, once there are any; the model may stay at
    home.
    """

    requires = {"objective": {"fedproto"}, "mean": {"weighted"}}  # noqa: RUF012
    goes_without_model = True

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        arrays = {name: state.vectors[name] for name in (PROTOTYPES, KNOWN) if name in state.vectors}
        return {PROTOTYPES: ArrayRecord({n: encoded(a) for n, a in arrays.items()})} if arrays else {}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        record = answer.content.get(PROTOTYPES)
        if not isinstance(record, ArrayRecord):
            raise ReplyRefused(f"the ArrayRecord {PROTOTYPES!r} is missing", "no prototypes")
        arrays = check_arrays(record, None)
        sums, shares = (arrays.get(name, np.empty(0)) for name in (SUMS, SHARES))
        if sums.ndim != 2 or shares.shape != sums.shape[:1] or not len(shares):
            raise ReplyRefused(
                f"{PROTOTYPES}: {SUMS!r} is {sums.shape}, {SHARES!r} is {shares.shape}", "shape"
            )
        if shares.min() < 0 or shares.sum() > 1.001:
            raise ReplyRefused(f"{PROTOTYPES}: {SHARES!r} are no shares")
        known = self.rule_state.vectors.get(PROTOTYPES, sums)
        if sums.shape != known.shape:
            raise ReplyRefused(f"{PROTOTYPES}: shape {sums.shape}, expected {known.shape}", "shape")
        return Extras(vectors={SUMS: sums.astype(np.float64).ravel(), SHARES: shares.astype(np.float64)})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        shares = round.means[SHARES]
        sums = round.means[SUMS].reshape(len(shares), -1)
        seen = shares > 0
        prototypes = state.vectors.setdefault(PROTOTYPES, np.zeros(sums.shape, np.float32))
        prototypes[seen] = sums[seen] / shares[seen, None]
        known = state.vectors.setdefault(KNOWN, np.zeros(len(shares), np.float32))
        known[seen] = 1
        return super().server_step(delta, state, round)
