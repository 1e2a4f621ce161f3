"""`Plan`: how what a client would send becomes one vector of integers, and what their sum says.

The vector of a client has, in this order: its update on a grid, ``w_i (x_i - x)`` of the stepped entries;
with a clip that adapts a number, a half of 1 or of -1, by whether the update was within the clip;
``w_i (b_i - b)`` of the other shared ones; its number of examples; of each metric that is a mean ``n a``,
``n``, ``a`` and 1; counts; the states of further metrics. All from the third on are `wide` numbers. To
evaluate, it has none of the first three.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedbn_flower.strategies import ExpectedMetrics
from fedbn_flower.strategies.aggregation.vectors import Layout, all_finite, squared_norm
from fedbn_flower.strategies.messages.validation import clipping_factor
from fedbn_flower.strategies.reply_reader import ROUNDING

from ..core.ground.columns import HELD_OUT
from ..core.ground.settings import flag_of
from ..core.ground.wire import NUM_EXAMPLES, TRAIN_EXAMPLES
from ..job.inputs import RunInputs
from .cryptography import DTYPES
from .integers import COUNT, NUMBER, WORDS, Grid, check_room, sum_of, words_of
from .noise import NoiseShares

PREFIX = "secagg-"
EXAMPLES = "eval-examples"
"""The number of examples of an evaluation, where it is not said by itself."""
COUNT_OF = {prefix: f"{prefix or 'eval-'}examples" for prefix in HELD_OUT}
NUMBERS = ("clip", "clients", "bits", "cap", "alike", "noise", "survivors", "honest")
"""What a plan says, beside lists of metrics."""
COUNT_NOISE = f"{PREFIX}count-noise"
"""What it says with a clip that adapts."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """What both sides know of the vectors of a phase.

    Parameters
    ----------
    clip : float
        The bound on the L2 norm of a client's update.
    clients : int
        How many vectors are added at most.
    bits : int
        Of a number of the update before it is summed; 0 for as many as its error needs.
    cap : int
        The largest number of examples of a client, by which it is weighed; 0 for equal weights.
    alike : bool
        Whether updates weigh alike all the same.
    means : tuple[str, ...]
        The metrics that are means, each with the count that weighs it: ``NAME COUNT``.
    counts : tuple[str, ...]
        The metrics that are counts.
    states : tuple[str, ...]
        The states of further metrics: ``NAME SIZE KIND``.
    noise : float
        With ``dp``, the deviation of the noise on the sum over the clip; see `NoiseShares`. 0 without.
    survivors : int
        Of how many clients a sum with noise is at least.
    honest : float
        The share of them whose noise is counted.
    count_noise : float
        With a clip that adapts, the deviation of the noise on the count of updates within it. 0 without.
    """

    clip: float
    clients: int
    bits: int
    cap: int
    alike: bool
    means: tuple[str, ...]
    counts: tuple[str, ...]
    states: tuple[str, ...]
    noise: float = 0.0
    survivors: int = 1
    honest: float = 1.0
    count_noise: float = 0.0

    @classmethod
    def metrics_of(cls, expected: ExpectedMetrics) -> dict[str, tuple[str, ...]]:
        """Return the `means`, `counts` and `states` of what a server expects of its clients."""
        own = (NUM_EXAMPLES, TRAIN_EXAMPLES)
        numbers = [
            name for name, known in expected.ranges.items() if known.length is None and name not in own
        ]
        counts = tuple(name for name in numbers if name in COUNT_OF.values())
        means = tuple(f"{name} {_counted_by(name)}" for name in numbers if name not in counts)
        kinds = {name: COUNT if like.dtype.kind in "iu" else NUMBER for name, like in expected.states.items()}
        states = tuple(f"{name} {like.size} {kinds[name]}" for name, like in expected.states.items())
        return {"means": means, "counts": counts, "states": states}

    def told(self) -> dict[str, Any]:
        """Return what messages say of it; see `heard`."""
        return {
            f"{PREFIX}{flag_of(name)}": list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value != () and (value or name != "count_noise")
        }

    @classmethod
    def heard(cls, asked: ConfigRecord) -> Plan:
        """Return the plan that a message tells.

        Raises
        ------
        ValueError
            When it tells none, or one that cannot be.
        """
        lists = {name: tuple(asked.get(f"{PREFIX}{name}", ())) for name in ("means", "counts", "states")}  # type: ignore[arg-type]
        numbers = {name: asked.get(f"{PREFIX}{name}") for name in NUMBERS}
        if any(value is None for value in numbers.values()):
            raise ValueError("secagg: the message does not say how numbers are to be rounded")
        plan = cls(**numbers, **lists, count_noise=asked.get(COUNT_NOISE, 0.0))  # type: ignore[arg-type]
        if not (0 < plan.clip < math.inf and plan.clients > 0 and plan.cap >= 0):
            raise ValueError(f"secagg: no numbers can be rounded for {numbers}")
        return plan

    def grid(self, entries: int) -> Grid:
        """Return the grid of an update with so many entries."""
        if self.noise:
            return self._shares(entries).grid
        return Grid.plan(self.clip, self.clients, entries, self.bits or None)

    def _shares(self, entries: int) -> NoiseShares:
        numbers = self.noise, self.clip, self.clients, self.survivors, entries, self.honest
        return NoiseShares.plan(*numbers, self.count_noise)

    def _half(self, entries: int) -> int:
        """Return the steps of a half of the number after an update; 0 without one."""
        return self._shares(entries).half if self.noise and self.count_noise else 0

    def grid_of(self, layout: Layout) -> Grid:
        """Return the grid of a layout's update."""
        return self.grid(_sizes(layout)[0])

    def weight(self, examples: int) -> float:
        """Return w_i of a client with so many examples: at most 1.

        Raises
        ------
        ValueError
            When it has more than any client is to have.
        """
        if self.cap and examples > self.cap:
            raise ValueError(f"max-num-examples: {self.cap} is less than this client has")
        return examples / self.cap if self.cap and not self.alike else 1.0

    # ---- a client's vector ---------------------------------------------------------------------------

    def trained(
        self,
        layout: Layout,
        model: Mapping[str, NDArray],
        received: Mapping[str, NDArray],
        examples: int,
        metrics: Mapping[str, Any],
        states: Mapping[str, NDArray],
        rng: np.random.Generator,
    ) -> NDArray[np.unsignedinteger]:
        """Return the vector of a client that has trained.

        Parameters
        ----------
        layout : Layout
            Of the shared entries, as the server has it.
        model, received : Mapping[str, NDArray]
            What was trained, and what it began with, by name.
        examples : int
            n_i.
        metrics : Mapping[str, Any]
            What the client found.
        states : Mapping[str, NDArray]
            Of further metrics.
        rng : np.random.Generator
            Rounds the update at random.

        Raises
        ------
        ValueError
            When it has more examples than any client is to have, what was trained is not finite, which with
            noise counts as an update of 0, or no sum has room for a number.
        """
        weight = self.weight(examples)
        update, norm = _stepped(layout, model, received)
        factor = weight * clipping_factor(norm, self.clip * ROUNDING)
        others = _flat(layout.statistics, model, received) * weight
        length: float | None = norm * factor
        if not math.isfinite(norm):  # nearly always it is: then rounding multiplies
            update *= factor
            factor, length = 1.0, None
        usable = length is not None or all_finite(update)
        within = not usable or norm <= self.clip * ROUNDING
        if self.noise:  # nothing leaves that has none
            update, others = update if usable else np.zeros_like(update), np.zeros_like(others)
        elif not (usable and np.isfinite(others).all()):
            raise ValueError("secagg: what was trained is not finite")
        check_room(others, "the change of a shared statistic")
        grid = self.grid(update.size)
        bit = np.array([half if within else -half] if (half := self._half(update.size)) else [], np.int64)
        parts = bit.view(np.uint64), words_of(others, NUMBER), self._reported(examples, metrics, states)
        rest = np.concatenate(parts)
        vector = np.empty(update.size + rest.size, DTYPES[grid.bits])
        vector[update.size :] = rest
        grid.quantise(update, rng, vector[: update.size], length, factor)
        return vector

    def evaluated(
        self, examples: int, metrics: Mapping[str, Any], states: Mapping[str, NDArray]
    ) -> NDArray[np.unsignedinteger]:
        """Return the vector of a client that has evaluated; see `trained`.

        Raises
        ------
        ValueError
            When no sum has room for a number.
        """
        return self._reported(examples, metrics, states).astype(np.uint32)

    def _reported(
        self, examples: int, metrics: Mapping[str, Any], states: Mapping[str, NDArray]
    ) -> NDArray[np.uint64]:
        counts = {EXAMPLES: examples, **metrics, NUM_EXAMPLES: examples if self.cap else 1}
        means = np.zeros((len(self.means), 4))
        for row, entry in zip(means, self.means, strict=True):
            name, by = entry.rsplit(" ", 1)
            value, count = metrics.get(name), counts.get(by, 0)
            if isinstance(value, int | float):
                row[:] = count * value, count, value, 1
                check_room(row, name)
        found = np.array([examples, *(metrics.get(name, 0) for name in self.counts)], np.float64)
        check_room(found, "a number of examples")
        parts = [words_of(found[:1], COUNT), words_of(means.reshape(-1), NUMBER), words_of(found[1:], COUNT)]
        for name, size, kind in map(_state, self.states):
            state = states.get(name)
            flat = np.zeros(size) if state is None else np.asarray(state, np.float64).reshape(-1)
            if flat.size != size:
                raise ValueError(f"secagg: the state {name!r} has {flat.size} numbers, not {size}")
            check_room(flat, name)
            parts.append(words_of(flat, kind))
        return np.concatenate(parts)

    # ---- what the server finds in a sum --------------------------------------------------------------

    def size(self, layout: Layout | None) -> int:
        """Return the length of a vector; without a layout, of one that has evaluated."""
        update, others = _sizes(layout)
        states = sum(WORDS[kind] * size for _, size, kind in map(_state, self.states))
        counts = WORDS[COUNT] * (1 + len(self.counts)) + (self._half(update) > 0)
        return update + WORDS[NUMBER] * (others + 4 * len(self.means)) + counts + states

    def dtype(self, layout: Layout | None) -> np.dtype:
        """Return the dtype of a vector."""
        return np.dtype(DTYPES[self.grid_of(layout).bits] if layout else np.uint32)

    def is_possible(
        self, found: Found, total: NDArray[np.unsignedinteger], count: int, layout: Layout
    ) -> bool:
        """Return whether so many clients within their bounds can have the sum of which this was read.

        Nobody sees what a single client sends, so it may be anything. But the weights of all are at most 1
        each, and their updates as long as the clip at most. So the mean is never longer than the clip.
        """
        update, grid = total[: found.update.size], self.grid_of(layout)
        if (half := self._half(update.size)) and abs(found.within) * 2 * half > count * half + grid.spare:
            return False
        return found.weight <= count and grid.is_possible(update, count, found.weight)

    def read(self, total: NDArray[np.unsignedinteger], count: int, layout: Layout | None) -> Found:
        """Return what the sum of so many clients' vectors says."""
        update_size, others_size = _sizes(layout)
        update = self.grid_of(layout).read(total[:update_size]) if layout else np.empty(0)
        at, within = update_size, 0.0
        if half := self._half(update_size):
            within = int(total[at : at + 1].view(f"i{total.itemsize}")[0]) / (2 * half)
            at += 1

        def numbers(size: int, kind: str) -> Numbers:
            nonlocal at
            start, at = at, at + WORDS[kind] * size
            return sum_of(total[start:at], kind, count)

        others = numbers(others_size, NUMBER)
        examples = float(numbers(1, COUNT)[0])
        means = numbers(4 * len(self.means), NUMBER).reshape(-1, 4)
        counts = numbers(len(self.counts), COUNT)
        states = {name: numbers(size, kind) for name, size, kind in map(_state, self.states)}
        names = [entry.rsplit(" ", 1)[0] for entry in self.means]
        return Found(
            update,
            others,
            examples,
            examples / self.cap if self.cap and not self.alike else float(count),
            {n: row[0] / row[1] for n, row in zip(names, means, strict=True) if row[1] > 0},
            {n: row[2] / row[3] for n, row in zip(names, means, strict=True) if row[3] > 0},
            {name: value for name, value in zip(self.counts, counts.tolist(), strict=True) if value > 0},
            states,
            within,
        )


@dataclass(frozen=True)
class Found:
    """What a sum over clients says.

    Parameters
    ----------
    update, others : Numbers
        The sums of ``w_i (x_i - x)`` and ``w_i (b_i - b)``, flat.
    examples, weight : float
        The sums of n_i and w_i.
    means, client_means : Mapping[str, float]
        Of each metric the mean by its count, and over the clients that report it.
    counts : Mapping[str, float]
        The sums of counts.
    states : Mapping[str, Numbers]
        The sums of states, flat.
    within : float
        With a clip that adapts, the sum of b_i - 1/2 with its noise, where b_i is 1 for an update within it.
    """

    update: Numbers
    others: Numbers
    examples: float
    weight: float
    means: Mapping[str, float]
    client_means: Mapping[str, float]
    counts: Mapping[str, float]
    states: Mapping[str, Numbers]
    within: float = 0.0


def _counted_by(name: str) -> str:
    """Return the count that weighs a metric: of held-out ones that of their split."""
    prefixes = sorted((prefix for prefix in HELD_OUT if prefix), key=len, reverse=True)
    if name.startswith("train-") or name.startswith("local-"):
        return NUM_EXAMPLES
    return COUNT_OF[next((prefix for prefix in prefixes if name.startswith(prefix)), "")]


def _state(entry: str) -> tuple[str, int, str]:
    name, size, kind = entry.rsplit(" ", 2)
    return name, int(size), kind


def _sizes(layout: Layout | None) -> tuple[int, int]:
    """Return the numbers of stepped entries and of others."""
    if layout is None:
        return 0, 0
    parameters, statistics = (
        sum(math.prod(layout.shapes[name][0]) for name in names)
        for names in (layout.parameters, layout.statistics)
    )
    return parameters, statistics


@np.errstate(over="ignore", invalid="ignore")
def _stepped(
    layout: Layout, model: Mapping[str, NDArray], received: Mapping[str, NDArray]
) -> tuple[Numbers, float]:
    """Return ``x_i - x`` of the stepped entries, flat, each tensor under its first name, and its L2 norm.

    The norm is that of `update_norm`, for which differences are not computed a second time.
    """
    update = np.empty(_sizes(layout)[0])
    parts = dict(layout.slices(layout.parameters, update))
    squares = {}
    for name, part in parts.items():
        squares[name] = _difference(model[name], received[name], part)
    for _, *others in layout.tensors:
        for name in others:
            parts[name][...] = 0
    return update, math.sqrt(sum(max(squares[name] for name in names) for names in layout.tensors))


@np.errstate(over="ignore", invalid="ignore")
def _flat(names: Sequence[str], model: Mapping[str, NDArray], received: Mapping[str, NDArray]) -> Numbers:
    """Return ``x_i - x`` of entries, flat."""
    parts = [np.empty(received[name].shape) for name in names]
    for name, part in zip(names, parts, strict=True):
        _difference(model[name], received[name], part)
    return np.concatenate([part.reshape(-1) for part in parts] or [np.empty(0)])


def _difference(array: NDArray, received: NDArray, into: Numbers) -> float:
    """Write ``x_i - x`` in float64, and 0 where x is not finite, as in attention masks; return its square."""
    np.subtract(array, received, out=into, dtype=np.float64)
    squares = squared_norm(into.reshape(-1))
    if not math.isfinite(squares):
        into[~np.isfinite(received)] = 0.0
        squares = squared_norm(into.reshape(-1))
    return squares


def most_examples(inputs: RunInputs) -> int:
    """Return how many training examples a client has at most; 0 where only sites know."""
    return int(inputs.partitions.train.sizes.max()) if inputs.dataset.has_examples else 0
