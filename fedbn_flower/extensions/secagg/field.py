"""The field of 2^128 elements in which secrets are shared out, many elements at once.

It is that of ``Crypto.Protocol.SecretSharing`` of the package ``pycryptodome``, polynomials over GF(2) modulo
``x^128 + x^7 + x^2 + x + 1``, and so are the shares, which tests compare. That package takes one point after
the other, a second for 78 neighbours. Elements are arrays of two words, the upper 64 bits first. No step or
address here depends on a secret: what is multiplied by, points and weights, is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

BITS = 128
LOW_TERMS = 0b10000111
"""x^7 + x^2 + x + 1, which x^128 is."""
Elements = NDArray[np.uint64]
"""Of shape (2, ...)."""


def elements(data: bytes) -> Elements:
    """Return the elements of 16 bytes each, of shape (2, count)."""
    return np.frombuffer(data, ">u8").reshape(-1, 2).T.astype(np.uint64)


def data_of(values: Elements) -> bytes:
    """Return elements of shape (2, count) as `elements` reads them."""
    return values.T.astype(">u8").tobytes()


def times(values: Elements, factors: Elements) -> Elements:
    """Return products, elementwise, in time that depends on the length of the factors, which are public."""
    high, low = factors
    product = np.zeros(np.broadcast_shapes(values.shape, factors.shape), np.uint64)
    length = int(high.max()).bit_length()
    length = length + 64 if length else int(low.max()).bit_length()
    for bit in reversed(range(length)):
        word = high if bit >= 64 else low
        product = _doubled(product) ^ (values & (0 - (word >> np.uint64(bit % 64) & np.uint64(1))))
    return product


def at_points(coefficients: Elements, points: Sequence[int]) -> Elements:
    """Return values of polynomials by Horner's rule, all points at once.

    Parameters
    ----------
    coefficients : NDArray
        Of the highest power first, of shape (2, degree + 1, polynomials).
    points : Sequence[int]
        Below 2^64.

    Returns
    -------
    NDArray
        Of shape (2, points, polynomials).
    """
    at = _small(points)[:, :, None]
    first, *others = np.moveaxis(coefficients, 1, 0)
    values = np.broadcast_to(first[:, None], (2, len(points), first.shape[-1]))
    for coefficient in others:
        values = times(values, at) ^ coefficient[:, None]
    return values


@lru_cache(maxsize=1024)
def weights(points: tuple[int, ...]) -> Elements:
    """Return by what values at these points are multiplied so that their sum is the value at 0 (Lagrange).

    Parameters
    ----------
    points : tuple[int, ...]
        Different ones, from 1 to below 2^64, one more than the degree.
    """
    at = np.array(points, np.uint64)
    below, all_points = _small([1] * len(points)), 1
    for place, point in enumerate(points):
        factor = at ^ at[place]
        factor[place] = at[place]
        below = times(below, np.stack([np.zeros_like(factor), factor]))
        all_points = _product(all_points, point)
    found = [_product(all_points, inverse) for inverse in _inverses(_numbers(below))]
    return elements(b"".join(number.to_bytes(BITS // 8, "big") for number in found))


def _doubled(values: Elements) -> Elements:
    """Return the products with x."""
    high, low = values
    one, last = np.uint64(1), np.uint64(63)
    return np.stack([high << one | low >> last, low << one ^ (high >> last) * np.uint64(LOW_TERMS)])


def _small(numbers: Sequence[int]) -> Elements:
    return np.stack([np.zeros(len(numbers), np.uint64), np.array(numbers, np.uint64)])


def _numbers(values: Elements) -> list[int]:
    return [int(high) << 64 | int(low) for high, low in values.T]


def _product(one: int, other: int) -> int:
    """Return the product of two public elements."""
    product = 0
    while other:
        if other & 1:
            product ^= one
        other >>= 1
        one <<= 1
        if one >> BITS:
            one ^= 1 << BITS | LOW_TERMS
    return product


def _inverses(numbers: Sequence[int]) -> list[int]:
    """Return the inverses of public elements, by one inversion: of their product (Montgomery 1987)."""
    products = [1]
    for number in numbers:
        products.append(_product(products[-1], number))
    square, inverse = products[-1], 1
    for _ in range(BITS - 1):  # Fermat: the power of 2^128 - 2
        square = _product(square, square)
        inverse = _product(inverse, square)
    found = []
    for number, before in zip(reversed(numbers), reversed(products[:-1]), strict=True):
        found.append(_product(inverse, before))
        inverse = _product(inverse, number)
    return found[::-1]
