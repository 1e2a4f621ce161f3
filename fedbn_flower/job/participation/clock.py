"""The simulated clock: how long a client takes to answer, and whose answers count.

Everything random derives from (seed, partition), so it is the same in every process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...extensions.devices import DEVICES, HEADER, sigma_of
from .rows import rows_of

IS_DEVICE = 15
"""The stream of random numbers of devices; see `seeded`."""
PLAIN = (0.01, 1e6, 1e6)
"""Seconds an example, bytes a second down and up, of a device that nothing else is said of."""
PHONE = (0.01, 0.75e6, 0.25e6)
"""The same, the median of phones. Rates: Wang et al. 2021, "A Field Guide to Federated Optimization", section
4.3. The seconds, and the spread of 1 in the logarithm, are assumptions."""

Rates = NDArray[np.float64]


def rates_of(text: str, seed: int, num_clients: int) -> Rates:
    """Parse ``devices``; return seconds an example, bytes a second down, and up, float64 (num_clients, 3).

    - ``uniform``: `PLAIN` for every client.
    - ``lognormal:SIGMA``: `PLAIN`, each number times exp(SIGMA z) with a z ~ N(0, 1) of its own.
    - ``phones``: the same of `PHONE`, with SIGMA = 1.
    - A file: a row for every client.

    Raises
    ------
    UserError
        When it is none of them, or the file has an impossible row, or not one for each client.
    """
    sigma = sigma_of(text)
    if text not in ("uniform", "phones") and sigma is None:
        return _listed(text, num_clients)
    z = np.random.default_rng([seed, 0, 0, IS_DEVICE]).standard_normal((num_clients, len(PLAIN)))
    if text == "phones":
        return np.array(PHONE) * np.exp(z)
    return np.array(PLAIN) * np.exp((sigma or 0.0) * z)


def _listed(name: str, num_clients: int) -> Rates:
    rates = np.full((num_clients, len(PLAIN)), np.nan)
    for line, row in rows_of("devices", name, DEVICES, HEADER):
        try:
            partition, values = int(row[0]), [float(cell) for cell in row[1:]]
        except ValueError:
            partition, values = -1, []
        fits = len(values) == len(PLAIN) and all(map(isfinite, values)) and values[0] >= 0 < min(values[1:])
        if not (fits and 0 <= partition < num_clients and np.isnan(rates[partition, 0])):
            expected = f"a partition-id below num-clients, {num_clients}, once, seconds >= 0 and rates > 0"
            found = f"{','.join(row)!r} in line {line} of {name!r}"
            raise UserError(f"devices: {found} is not allowed; expected {expected}")
        rates[partition] = values
    if len(missing := np.flatnonzero(np.isnan(rates[:, 0]))):
        raise not_allowed("devices", name, f"a row for every client ({missing[0]} has none)")
    return rates


@dataclass
class Clock:
    """The simulated time of a round.

    A client with n examples that does a share u of E epochs takes ``B / down + u E n s + A / up`` seconds: it
    gets B bytes, and answers with A.

    Parameters
    ----------
    rates : NDArray[np.float64]
        As `rates_of` returns them.
    examples : NDArray[np.int64]
        Each client's number of training examples, (num_clients,).
    epochs : int
        ``local-epochs``.
    work : callable, optional
        The share of its work that a client does, from partition and round; all of it without.
    bytes_in : callable
        The bytes that each client gets in a round, and those that it sends.
    deadline : float
        Seconds after which an answer does not count.
    """

    rates: Rates
    examples: NDArray[np.int64]
    epochs: int
    work: Callable[[int, int], float] | None
    bytes_in: Callable[[int], tuple[int, int]]
    deadline: float = inf

    round_seconds: float = 0.0
    """How long the last round asked about waited for answers."""

    def seconds(self, server_round: int, partitions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how long each client takes to answer in a round, float64 of the same shape."""
        per_example, down, up = self.rates[partitions].T
        share = np.ones(len(partitions))
        if self.work:
            share[:] = [self.work(partition, server_round) for partition in partitions.tolist()]
        gets, sends = self.bytes_in(server_round)
        compute = share * self.epochs * self.examples[partitions] * per_example
        return np.asarray(gets / down + compute + sends / up, np.float64)

    def first(
        self, server_round: int, partitions: NDArray[np.integer], answers: NDArray[np.bool_], wanted: int
    ) -> NDArray[np.bool_]:
        """Return whose answers count: the first ``wanted`` until the deadline; ties go by partition.

        Bonawitz et al. 2019, "Towards Federated Learning at Scale", section 2.2. The round lasts until the
        last of these; until the deadline if they are too few. Without a deadline it is known at once that a
        client is lost.

        Parameters
        ----------
        server_round : int
            The round.
        partitions : NDArray[np.integer]
            Those asked. Node ids stand for unknown ones: without a device, their answers do not count.
        answers : NDArray[np.bool_]
            Who of them is not lost.
        wanted : int
            With how many answers the round ends, at most as many as are asked.
        """
        known = partitions < len(self.rates)
        seconds = np.full(len(partitions), inf)
        seconds[known] = self.seconds(server_round, partitions[known].astype(np.int64))
        answers = answers & known
        order = np.lexsort((partitions, seconds))
        counted = np.zeros(len(partitions), bool)
        counted[order[answers[order] & (seconds[order] <= self.deadline)][:wanted]] = True
        if counted.sum() < wanted and isfinite(self.deadline):
            self.round_seconds = self.deadline
        else:
            self.round_seconds = float(seconds[counted].max(initial=0.0))
        return counted
