"""How differently data are divided: sizes, and labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.statistics import Counts, Numbers


@dataclass(frozen=True, eq=False)
class LabelSkew:
    """How the clients' label distributions p_k differ from that of all their examples, q.

    Parameters
    ----------
    total_variation : NDArray
        (clients,): half the sum of ``|p_k - q|``, in 0..1; the least share of a client's examples that would
        need another label.
    jensen_shannon : NDArray
        (clients,): the Jensen-Shannon distance of p_k and q, the root of the divergence to base 2, in 0..1
        (Endres and Schindelin 2003).
    effective_classes : NDArray
        (clients,): the exponential of the entropy of p_k (Hill 1973): k equally frequent classes count as k.
    present : NDArray
        (clients,): the number of classes that the client has.
    """

    total_variation: Numbers
    jensen_shannon: Numbers
    effective_classes: Numbers
    present: Counts

    @classmethod
    def of(cls, counts: Counts) -> "LabelSkew":
        """Return the skew of counts (clients, classes), of which no client has none."""
        p = counts / counts.sum(1, keepdims=True)
        q = counts.sum(0) / counts.sum()
        divergence = entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2
        return cls(
            np.abs(p - q).sum(1) / 2,
            np.sqrt(np.maximum(divergence, 0) / np.log(2)),
            np.exp(entropy(p)),
            (counts > 0).sum(1),
        )


def entropy(p: Numbers) -> Numbers:
    """Return the entropy of distributions along the last axis, in nats."""
    found: Numbers = -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    return found


def gini(sizes: Sequence[int]) -> float:
    """Return the Gini coefficient of sizes: the mean of ``|n_i - n_j|`` over twice the mean of n.

    It is 0 for equal sizes and ``1 - 1/n`` if one of n clients has everything.
    """
    ordered = np.sort(np.asarray(sizes, np.float64))
    count = len(ordered)
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered / (count * ordered.sum()))


def shares_of(counts: Counts) -> Numbers:
    """Return each client's shares of its counts (clients, classes); NaN for a client without any."""
    with np.errstate(invalid="ignore"):
        found: Numbers = counts / counts.sum(1, keepdims=True)
    return found
