"""Whole numbers in the place of floats, so that a sum modulo 2^32 or 2^64 is exact.

A client's numbers are divided by the grid's step and rounded at random, up with the probability of what is
left in 16 bits: with a bias of `BIAS` steps at most, and a variance of a quarter of a squared step at most.
Rounding can make a vector longer. It is done again until the length is within a bound, which nearly every
rounding meets (conditional rounding: Kairouz, Liu and Steinke 2021, arXiv 2102.06387, section 4.1), so that
the bound always holds, and privacy may rest on it. The paper's random rotation is left out: 32 bits have room
for numbers as great as the clip.

Numbers of which no clip is known, as words that add: statistics, counts, metrics.

A whole number of 64 bits travels as four words of 16 bits. The sum of up to 65535 clients' words fits a word
of 32 bits, and so any modulus of a vector. Of other numbers the whole part travels so, and the fraction in
steps of 2^-60: all that a float64 has, unless it is below that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .cryptography import DTYPES, Vector

ERROR = 1e-4
"""Of the mean of a round, over the clip: a tenth of a per mille."""
REJECTED = 2.0**-40
"""beta: a rounding is done again with this probability at most, which is what bias that makes, in steps."""
MOST_BITS = 48
"""Of one client's number: a float64 still has its fraction."""
OVERSHOOT = 1e-6
"""By which a vector that was clipped in float32 may be longer than the clip, over it."""
TAILS = 12
"""Deviations of the sum's noise that have room in it: it is greater with a probability of 1e-31 an entry."""
BLOCK = 2**15  # numbers that are rounded together
UNIFORM = 2**16
"""Of how many equally likely numbers a number is rounded by one: 16 bits of a generator's word."""
WORDS_AT_ONCE = 4  # of 16 bits, in one of a generator
BIAS = 0.5 / UNIFORM + 2.0**-23
"""How far the mean of what a number is rounded to is from it at most, in steps: u is one of a grid's middles,
and x + u has the last bit of a float64 up to 2^31."""
NORM_BLOCK = 2**16


@dataclass(frozen=True)
class Grid:
    """How every client's vector becomes whole numbers, and their sum floats.

    Parameters
    ----------
    bits : int
        m: the numbers are taken modulo 2^m, 32 or 64.
    step : float
        gamma, what one stands for.
    most : float
        The length of a client's vector, at most.
    clients : int
        How many may be summed.
    entries : int
        How many numbers a vector has.
    norm : float
        The length in steps, at most, of what `quantise` returns.
    spare : int
        What else may be added to an entry of the sum, at most, in steps: noise.
    """

    bits: int
    step: float
    most: float
    clients: int
    entries: int
    norm: float
    spare: int = 0

    def __post_init__(self) -> None:
        if not (self.step > 0 and self.most > 0 and self.clients > 0 and self.entries >= 0):
            raise ValueError(f"{self}: all of these must be greater than 0")
        if self.bits not in DTYPES or self.clients * self.bound + self.spare > _half(self.bits):
            raise ValueError(f"{self}: the sum can be greater than {self.bits} bits hold")

    @classmethod
    def plan(
        cls, clip: float, clients: int, entries: int, bits: int | None = None, modulus: int | None = None
    ) -> Grid:
        """Return the grid of vectors of a length up to a clip.

        Parameters
        ----------
        clip : float
            The length of each vector, at most.
        clients, entries : int
            How many vectors may be summed, of how many numbers each.
        bits : int, optional
            Of one client's numbers, sign included, from 2 to 48. By default as many as a sum of 32 bits has
            room for, if the `error` is then at most `ERROR`; otherwise up to 48, in a sum of 64 bits.
        modulus : int, optional
            The bits of the sum, 32 or 64; by default 32 where that is possible.

        Raises
        ------
        ValueError
            When the sum can be greater than its bits hold, or what is given is out of its range.
        """
        if bits is None:
            fine = _finest(32, clients)
            coarse = fine < 2 or _mean_error(fine, clients, entries) > ERROR
            modulus = modulus or (64 if coarse else 32)
            greatest = _finest(modulus, clients)
        elif 2 <= bits <= MOST_BITS:
            greatest = 2 ** (bits - 1) - 1
            modulus = modulus or (32 if clients * (greatest + 1) <= _half(32) else 64)
        else:
            raise ValueError(f"bits {bits}: must be from 2 to {MOST_BITS}")
        if greatest < 1:
            raise ValueError(f"{clients} clients: {modulus} bits hold no sum of so many")
        return cls.of_length(greatest, clip, clients, entries, modulus)

    @classmethod
    def of_length(
        cls, length: float, clip: float, clients: int, entries: int, bits: int, spare: int = 0
    ) -> Grid:
        """Return the grid on which a vector as long as the clip has this length in steps."""
        norm = rounded_norm(length, entries)
        return cls(bits, clip / length, clip, clients, entries, norm, spare)

    @property
    def bound(self) -> int:
        """The greatest size of a number of one client, in steps."""
        return math.ceil(self.most / self.step * (1 - 1e-12))

    @property
    def error(self) -> float:
        """The root of the mean squared length of what rounding does to the mean of all, over `most`."""
        return _mean_error(self.most / self.step, self.clients, self.entries)

    def error_of(self, clients: int, weight: float) -> float:
        """Return `error` of the mean of so many clients whose weights have this sum."""
        return self.error * math.sqrt(self.clients * clients) / weight

    def is_possible(self, total: Vector, clients: int, weight: float) -> bool:
        """Return whether so many vectors can have a sum, each of which is as long as its weight times `most`.

        Rounding makes each longer by less than a step an entry. The length of the noise, whose deviations
        `spare` is `TAILS` of in an entry, is within the bound but for a probability of 1e-31.
        """
        root = math.sqrt(self.entries)
        bound = weight * self.most / self.step + clients * root + self.spare * (root / TAILS + 1)
        return _length(total.view(f"i{total.itemsize}")) <= bound * (1 + 1e-9)

    def quantise(
        self,
        vector: NDArray[np.floating],
        rng: np.random.Generator,
        out: Vector | None = None,
        length: float | None = None,
        factor: float = 1.0,
    ) -> Vector:
        """Return a client's numbers in steps, modulo ``2^bits``.

        Parameters
        ----------
        vector : NDArray
            Of `entries` floats, of any shape. If it is too long by `OVERSHOOT` at most, as float32 makes it,
            it is shortened to `most`.
        rng : Generator
            For rounding, with raw words of 64 bits, as `numpy.random.default_rng` has them.
        out : NDArray, optional
            A flat place for the numbers; by default a new one.
        length : float, optional
            The vector's, times the factor; by default it is computed.
        factor : float
            What the vector is multiplied by first.

        Raises
        ------
        ValueError
            When entries are not finite, are of another number, or longer than `most`.
        """
        flat = vector.reshape(-1)
        if flat.size != self.entries:
            raise ValueError(f"{flat.size} numbers: must be {self.entries}")
        scale = factor * self._scale_of(factor * _length(flat) if length is None else length) / self.step
        numbers: Vector = np.empty(flat.size, DTYPES[self.bits]) if out is None else out
        while True:
            squares = _round(flat, scale, rng, numbers)
            if squares * (1 + 1e-9) <= self.norm**2:  # floats add squares up to an error of 1e-11
                return numbers.reshape(vector.shape)

    def read(self, total: Vector) -> NDArray[np.float64]:
        """Return a sum of such numbers as floats."""
        return total.view(f"i{total.itemsize}") * np.float64(self.step)

    def _scale_of(self, length: float) -> float:
        """Return by what a vector of a length is multiplied to be within `most`: 1 as a rule."""
        if not length <= self.most * (1 + OVERSHOOT):
            raise ValueError(f"a vector of length {length:.6g}: must be {self.most:.6g} at most")
        return min(1.0, self.most / length) if length else 1.0


def _round(flat: NDArray[np.floating], scale: float, rng: np.random.Generator, out: Vector) -> float:
    """Round a scaled vector at random; return the sum of squares. Blocks stay in the processor's cache.

    A number becomes ``floor(x + u)`` with u from the middles of `UNIFORM` parts of [0, 1), so that whole
    numbers stay. A float64 has room for both in a sum of 32 bits; in one of 64 bits the fraction is
    rounded by itself.
    """
    squares, signed, apart = 0.0, out.view(f"i{out.itemsize}"), out.itemsize > 4
    scaled, drawn, wholes = np.empty((3, min(BLOCK, flat.size)))
    for start in range(0, flat.size, BLOCK):
        size = min(BLOCK, flat.size - start)
        part, uniform, whole = scaled[:size], drawn[:size], wholes[:size]
        words = rng.bit_generator.random_raw(-(-size // WORDS_AT_ONCE)).view(np.uint16)
        np.multiply(words[:size], 1 / UNIFORM, out=uniform)
        uniform += 0.5 / UNIFORM
        np.multiply(flat[start : start + size], scale, out=part, dtype=np.float64)
        if apart:
            np.floor(part, out=whole)
            part -= whole
        part += uniform
        np.floor(part, out=part)
        if apart:
            part += whole
        squares += float(part @ part)
        np.copyto(signed[start : start + size], part, casting="unsafe")
    return squares


def _length(flat: NDArray) -> float:
    """Return the L2 norm of a vector, in float64 block by block."""
    blocks = (flat[start : start + NORM_BLOCK] for start in range(0, flat.size, NORM_BLOCK))
    parts = (block.astype(np.float64, copy=False) for block in blocks)
    return math.sqrt(sum(float(part @ part) for part in parts))


def rounded_norm(length: float, entries: int) -> float:
    """Return how long a vector is at most after conditional rounding, in steps (arXiv 2102.06387, theorem 1).

    Parameters
    ----------
    length : float
        Before it, in steps.
    entries : int
        d.
    """
    root = math.sqrt(entries)
    probable = length**2 + entries / 4 + math.sqrt(-2 * math.log(REJECTED)) * (length + root / 2)
    return math.sqrt(min(probable, (length + root) ** 2)) * (1 + 1e-9)


def length_of_rounded(norm: float, entries: int) -> float:
    """Return how long a vector may be before it is rounded, for a `rounded_norm`; 0 if none may be.

    Of the two bounds of that the one that allows more.
    """
    root, factor = math.sqrt(entries), math.sqrt(-2 * math.log(REJECTED))
    norm /= 1 + 1e-9
    # length^2 + factor length = norm^2 - entries / 4 - factor root / 2
    rest = norm**2 - entries / 4 - factor * root / 2
    probable = -factor / 2 + math.sqrt(factor**2 / 4 + rest) if rest > 0 else 0.0
    return max(probable, norm - root, 0.0)


def _half(bits: int) -> int:
    """Return the greatest size of a sum with a sign."""
    return (1 << bits - 1) - 1


def _finest(bits: int, clients: int) -> int:
    """Return the greatest size of a client's numbers before rounding, such that no sum of all can wrap."""
    return min(_half(bits) // clients, 1 << (MOST_BITS - 1)) - 1


def _mean_error(length: float, clients: int, entries: int) -> float:
    """Return the deviation of a mean's rounding over the clip, which is ``length`` steps."""
    return math.sqrt(entries / clients) / (2 * length)


BITS = 16
"""Of a word, before it is summed."""
PLACES = 4
"""Words of a whole number."""
MOST_CLIENTS = 2**BITS - 1
ZERO = 2**62
"""What is added to a whole number, so that it is not negative."""
LARGEST = 2.0**61
"""The largest number that is summed."""
FRACTION = 60
"""Bits after the point of what is left of a number beside its whole part."""
COUNT, NUMBER = "count", "number"
WORDS = {COUNT: PLACES, NUMBER: 2 * PLACES}
"""Of a number of a kind."""


def check_room(numbers: NDArray[np.float64], name: str) -> None:
    """Refuse numbers of this name for which words have no room.

    Raises
    ------
    ValueError
        When one is not finite, or beyond `LARGEST`.
    """
    if not (np.abs(numbers) <= LARGEST).all():  # the number is not told: the server reads this
        raise ValueError(f"secagg: {name} is not finite, or beyond {LARGEST:.2g}: no sum has room for it")


def words_of(numbers: NDArray[np.float64], kind: str) -> NDArray[np.uint64]:
    """Return the words of numbers that `check_room` lets pass; of counts the nearest whole ones."""
    whole = np.rint(numbers)
    if kind == COUNT:
        return _words(whole)
    return np.concatenate([_words(whole), _words(np.rint(np.ldexp(numbers - whole, FRACTION)))])


def sum_of(words: NDArray[np.unsignedinteger], kind: str, clients: int) -> NDArray[np.float64]:
    """Return the sum of numbers from the sum of the words of so many clients."""
    if kind == COUNT:
        return _sum(words, clients)
    whole, left = np.split(words, 2)
    total: NDArray[np.float64] = _sum(whole, clients) + np.ldexp(_sum(left, clients), -FRACTION)
    return total


def _words(whole: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the 16 bits in each place of whole numbers, from the lowest on: they lie so in memory."""
    return (whole.astype(np.int64) + ZERO).astype("<i8").view("<u2").astype(np.uint64)


def _sum(words: NDArray[np.unsignedinteger], clients: int) -> NDArray[np.float64]:
    parts = words.astype(np.int64).reshape(-1, PLACES)
    low = parts[:, 0] + (parts[:, 1] << BITS)
    high = parts[:, 2] + (parts[:, 3] << BITS) - clients * (ZERO >> 2 * BITS)
    total: NDArray[np.float64] = np.ldexp(high.astype(np.float64), 2 * BITS) + low
    return total
