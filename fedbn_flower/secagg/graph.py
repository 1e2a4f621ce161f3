"""Who masks with whom: a random k-regular graph, by Bell et al. 2020 (ePrint 2020/704).

Clients stand in a circle in a random order; each has the k that stand next to it as neighbours (Harary 1962,
whose graphs stay connected when any k - 1 clients go). For few clients everybody is everybody's neighbour, as
with Bonawitz et al. 2017. Every client's secrets are shared out to its neighbours *and itself*, k + 1 shares:
a survivor's own share of its seed counts, as with Bonawitz et al., or two of three sites could open no sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOLERANCE = 1 / 3
"""The share of clients that may drop out in a round: one of three."""
CORRUPT = 0.1
"""The share of clients that may work with the server."""
SECURITY = 2.0**-40
"""The probability that a client's masks can be taken off by those who work with the server, at most."""
FAILURE = 2.0**-10
"""The probability that a round in which as many drop out as may do has no result, at most."""


def neighbours(members: Sequence[int], k: int, seed: int) -> dict[int, tuple[int, ...]]:
    """Return each client's neighbours, in ascending order; who is a neighbour has one.

    Parameters
    ----------
    members : Sequence[int]
        The clients of a round, in any order.
    k : int
        How many neighbours each has; one more where both k and the number of clients are odd, as no graph can
        have it otherwise, and all others where there are no more.
    seed : int
        Of the order, not negative: a round's own, which nobody could choose.

    Raises
    ------
    ValueError
        For a client that comes twice, or k below 1.
    """
    if len(set(members)) < len(members) or k < 1:
        raise ValueError(f"{k} neighbours each of {len(members)} clients: must be at least 1, all different")
    n = len(members)
    if k >= n - 1:
        return {me: tuple(sorted(set(members) - {me})) for me in sorted(members)}
    k += k % 2 * n % 2
    order = np.random.default_rng(seed).permutation(sorted(members)).tolist()
    steps = [step for distance in range(1, k // 2 + 1) for step in (distance, -distance)]
    steps += [n // 2] if k % 2 else []
    return {
        me: tuple(sorted(order[(place + step) % n] for step in steps))
        for place, me in sorted(enumerate(order), key=lambda pair: pair[1])
    }


def threshold(n: int, tolerance: float = TOLERANCE, k: int | None = None) -> int:
    """Return how many of a client's k + 1 shares are to give its secrets.

    As many as `FAILURE` allows when ``floor(tolerance n)`` clients drop out: then of the shares there are a
    hypergeometric number. Always more than half, so that the shares of one client's seed and of its mask key
    do not come from different halves of those who hold them: with t shares, a server that lies about who
    dropped out needs ``2t - k - 1`` of them to work with it.

    Parameters
    ----------
    n : int
        The clients of a round, at least 2.
    tolerance : float
        The share that may drop out, in [0, 1/2).
    k : int, optional
        Neighbours of each; by default all others.

    Raises
    ------
    ValueError
        When no number of shares is both: too many may drop out, or k is too small for it; see `default_k`.
    """
    k = n - 1 if k is None else min(k, n - 1)
    found = _most_shares(n, tolerance, k) if n > 1 else 0
    if 2 * found <= k + 1:
        raise ValueError(f"{tolerance} of {n} clients with {k} neighbours each: too many may drop out")
    return found


def default_k(n: int, tolerance: float = TOLERANCE, corrupt: float = CORRUPT) -> int:
    """Return the least even number of neighbours that is safe enough; all others where none smaller is.

    Conditions (Bell et al. 2020, with the exact hypergeometric distribution in place of its
    bounds, and a server that may lie about who dropped out):

    - a `threshold` for it;
    - with probability 1 - `SECURITY` no client has ``2t - k - 1`` neighbours that work with the server;
    - without those and the dropped out the others stay connected: else k/2 who stand next to each other
      would all be of them, which has a probability of ``n (tolerance + corrupt)^(k/2)`` at most.

    Parameters
    ----------
    n : int
        The clients of a round, at least 2.
    tolerance, corrupt : float
        The shares of them that may drop out, and that may work with the server.
    """
    from scipy.stats import hypergeom

    for k in range(2, n - 1, 2):
        shares = _most_shares(n, tolerance, k)
        lied_to = hypergeom.sf(2 * shares - k - 2, n - 1, int(corrupt * n + 1e-9), k)
        if 2 * shares > k + 1 and n * max(lied_to, (tolerance + corrupt) ** (k / 2)) <= SECURITY:
            return k
    return n - 1


def _most_shares(n: int, tolerance: float, k: int) -> int:
    """Return how many shares of each client survive at least, but for a probability of `FAILURE`."""
    from scipy.stats import hypergeom

    gone = int(tolerance * n + 1e-9)
    others = n - 1
    # A survivor's own share counts; who dropped out is one of those that did.
    of_survivor = 1 + hypergeom.ppf(FAILURE / n, others, others - gone, k)
    of_dropped = hypergeom.ppf(FAILURE / n, others, n - gone, k) if gone else of_survivor
    return int(min(of_survivor, of_dropped))
