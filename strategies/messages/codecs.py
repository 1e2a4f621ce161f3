"""Codecs of updates, which encode ``trained - received``: as a record of codes, which decodes to the model.

Top-k and random-k: Stich et al. 2018, "Sparsified SGD with Memory" (arXiv 1809.07599).
QSGD: Alistarh et al. 2017 (arXiv 1610.02132); FedPAQ sends it: Reisizadeh et al. 2020 (1909.13014).
Scaled sign: EF-signSGD, Karimireddy et al. 2019 (arXiv 1901.09847).
PowerSGD: Vogels et al. 2019 (arXiv 1905.13727).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import ClassVar, Self

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from ..aggregation.vectors import all_finite
from .npy import decoded, encoded, encoded_bytes, from_upper_halves, upper_halves, viewed

__all__ = ["CODECS", "Codec", "compressed", "decompressed"]

Codes = Mapping[str, NDArray]
Layout = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array that travels, by name."""


class Codec(ABC):
    """Base of the codecs: implement `layout`, `encode` and `decode`.

    It encodes a vector, float32, of a length that both sides know.

    Parameters
    ----------
    argument : str
        What follows the name: ``0.05`` in ``topk:0.05``.
    feedback : bool, optional
        Whether the residual is added to the next update (error feedback); by default `needs_feedback`. An
        unbiased codec is then scaled to be a contraction.

    Raises
    ------
    ValueError
        For an argument that is not allowed; the message says what is.
    """

    paper: ClassVar[str] = ""
    needs_feedback: ClassVar[bool] = False
    """Whether it is biased so that without feedback training may end elsewhere."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of the arrays that make up the vector; empty if that is not known."""

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        self.feedback = self.needs_feedback if feedback is None else feedback
        if argument:
            raise ValueError("nothing after its name")

    def of_shapes(self, shapes: Iterable[tuple[int, ...]]) -> Self:
        """Return the codec for vectors that concatenate arrays of these shapes."""
        other = copy(self)
        other.shapes = tuple(shapes)
        return other

    @abstractmethod
    def layout(self, size: int) -> Layout:
        """Return the arrays that encode a vector of this length."""

    @abstractmethod
    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        """Return the encoded arrays, with the shapes and dtypes of `layout`.

        All random numbers must come from ``rng``, which depends on the seed, the client and the round only.
        """

    @abstractmethod
    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        """Return the vector; ValueError if the arrays are not a valid code."""


def count_of(argument: str, size: int) -> int:
    """Return a share of ``size`` values as a number: ``max(1, ceil(share * size))``, 0 if size is 0.

    The share is taken as an exact decimal: 0.07 of 100 is 7, though the float product is above 7.
    """
    return min(size, max(1, ceil(Fraction(Decimal(argument)) * size)))


def check_share(name: str, argument: str) -> str:
    """Return a share in (0, 1], as it was written; ValueError for another."""
    try:
        fits = 0 < float(argument) <= 1
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name}:SHARE, with a share in (0, 1]")
    return argument


class TopK(Codec):
    """The share ``topk:SHARE`` of the values that are largest in magnitude, with their positions."""

    paper = "stich2018sparsified"
    needs_feedback = True

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        self.share = check_share("topk", argument)

    def layout(self, size: int) -> Layout:
        kept = (count_of(self.share, size),)
        return {"indices": (kept, "uint32"), "values": (kept, "float32")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        kept = count_of(self.share, vector.size)
        order = np.argsort(-np.abs(vector), kind="stable")  # ties: the first
        indices = np.sort(order[:kept]).astype(np.uint32)
        return {"indices": indices, "values": vector[indices]}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        indices = codes["indices"].astype(np.int64)
        if indices.size and (indices[-1] >= size or (np.diff(indices) <= 0).any()):
            raise ValueError(f"indices: not in increasing order below {size}")
        vector = np.zeros(size, np.float32)
        vector[indices] = codes["values"]
        return vector


class RandK(Codec):
    """A uniform share ``randk:SHARE``: k = ceil(SHARE d) of d values, times d / k, which is unbiased.

    Of 5 values ``randk:0.3`` sends 2, times 2.5; with feedback not scaled. Positions travel as a seed.
    """

    paper = "stich2018sparsified"

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        self.share = check_share("randk", argument)

    def layout(self, size: int) -> Layout:
        return {"seed": ((1,), "uint64"), "values": ((count_of(self.share, size),), "float32")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        seed = rng.integers(2**63, size=1).astype(np.uint64)
        values = vector[self._indices(seed, vector.size)]
        if not self.feedback and values.size:
            values = values * np.float32(vector.size / values.size)
        return {"seed": seed, "values": values}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        vector = np.zeros(size, np.float32)
        vector[self._indices(codes["seed"], size)] = codes["values"]
        return vector

    def _indices(self, seed: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
        return np.random.default_rng(int(seed[0])).permutation(size)[: count_of(self.share, size)]


BUCKET = 512
BITS = tuple("2345678")


class Qsgd(Codec):
    """Values rounded at random to ``qsgd:BITS`` bits, 2 to 8, as multiples of ``norm / levels``: unbiased.

    Section 3.2's buckets: each 512 values have their own L2 norm. With feedback all is divided by 1 + omega,
    the bound on the variance (lemma 3.1). Codes have one length here, where the paper uses Elias coding.
    """

    paper = "alistarh2017qsgd"

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        if argument not in BITS:
            raise ValueError("qsgd:BITS, with 2 to 8 bits")
        self.bits = int(argument)
        self.levels = 2 ** (self.bits - 1) - 1

    def layout(self, size: int) -> Layout:
        return {
            "norms": ((-(-size // BUCKET),), "float32"),
            "codes": ((-(-size * self.bits // 8),), "uint8"),
        }

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        size = vector.size
        padded = np.zeros((-(-size // BUCKET), BUCKET))
        padded.reshape(-1)[:size] = vector
        norms = np.linalg.norm(padded, axis=1).astype(np.float32)
        scaled = padded / np.where(norms, norms, 1)[:, None] * self.levels
        whole = np.clip(np.floor(scaled + rng.random(scaled.shape)), -self.levels, self.levels)
        codes = (whole.reshape(-1)[:size] + self.levels).astype(np.uint8)
        bits = np.unpackbits(codes[:, None], axis=1)[:, 8 - self.bits :]
        omega = min(BUCKET / self.levels**2, BUCKET**0.5 / self.levels) if self.feedback else 0.0
        return {"norms": norms / np.float32(1 + omega), "codes": np.packbits(bits)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        bits = np.unpackbits(codes["codes"], count=size * self.bits).reshape(size, self.bits)
        whole = np.packbits(bits, axis=1).reshape(-1).astype(np.int64) >> (8 - self.bits)
        if (whole > 2 * self.levels).any() or (codes["norms"] < 0).any():
            raise ValueError("a code above the levels, or a norm below 0")
        norms = np.repeat(codes["norms"], BUCKET)[:size]
        return np.asarray(norms * (whole - self.levels) / self.levels, np.float32)


class Bf16(Codec):
    """Every value in 16 bits, rounded to the nearest, ties to even."""

    def layout(self, size: int) -> Layout:
        return {"values": ((size,), "uint16")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        return {"values": upper_halves(vector)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        return from_upper_halves(codes["values"])


class Sign(Codec):
    """One bit per value, its sign, and the mean magnitude of each array.

    Algorithm 1's ``norm(x, 1) / d * sign(x)``, for each array by itself, where the paper has one vector. A
    value of 0 counts as positive.
    """

    paper = "karimireddy2019error"
    needs_feedback = True

    def layout(self, size: int) -> Layout:
        return {"scales": ((len(self._sizes(size)),), "float32"), "signs": ((-(-size // 8),), "uint8")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        arrays = np.split(np.abs(vector), np.cumsum(self._sizes(vector.size))[:-1])
        scales = [array.mean(dtype=np.float64) if array.size else 0.0 for array in arrays]
        return {"scales": np.array(scales, np.float32), "signs": np.packbits(vector >= 0)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        if (codes["scales"] < 0).any():
            raise ValueError("a scale below 0")
        scales = np.repeat(codes["scales"], self._sizes(size))
        return np.where(np.unpackbits(codes["signs"], count=size), scales, -scales)

    def _sizes(self, size: int) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes] or [size]


Matrix = NDArray[np.float64]
NEGLIGIBLE = 1e-10
"""What is left of a column without its part in the span of others is rounding, if it is less of it."""


class LowRank(Codec):
    """Each matrix as a product of two of rank ``lowrank:RANK``.

    Algorithm 1: ``P = orthogonalise(M Q)``, then ``Q = M^T P``; P Q^T stands for M. Departures: clients
    answer once, so each has a P of its own; Q begins at random in every round, so clients need no memory of
    it. A kernel is a matrix with a row for each output. Vectors, and matrices that P and Q would not make
    smaller, are sent uncoded.
    """

    paper = "vogels2019powersgd"
    needs_feedback = True

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        if not (argument.isdecimal() and int(argument) >= 1):
            raise ValueError("lowrank:RANK, with a rank >= 1")
        self.rank = int(argument)

    def layout(self, size: int) -> Layout:
        coded = [(rows, columns) for _, rows, columns in self._parts(size) if columns]
        p, q = (sum(shape[axis] * self.rank for shape in coded) for axis in (0, 1))
        rest = sum(rows for _, rows, columns in self._parts(size) if not columns)
        return {name: ((length,), "float32") for name, length in (("p", p), ("q", q), ("rest", rest))}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        codes: dict[str, list[NDArray]] = {"p": [], "q": [], "rest": []}
        for start, rows, columns in self._parts(vector.size):
            if not columns:
                codes["rest"].append(vector[start : start + rows])
                continue
            m = vector[start : start + rows * columns].reshape(rows, columns).astype(np.float64)
            q = rng.standard_normal((columns, self.rank))
            p = _orthogonal(np.einsum("ij,jk->ik", m, q)).astype(np.float32)
            codes["p"].append(p.reshape(-1))
            codes["q"].append(np.einsum("ij,ik->jk", m, p).astype(np.float32).reshape(-1))
        empty = np.zeros(0, np.float32)
        return {name: np.concatenate([empty, *arrays]) for name, arrays in codes.items()}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        vector = np.zeros(size, np.float32)
        at = dict.fromkeys(codes, 0)

        def next_of(name: str, length: int) -> NDArray[np.float32]:
            at[name] += length
            return codes[name][at[name] - length : at[name]]

        for start, rows, columns in self._parts(size):
            if not columns:
                vector[start : start + rows] = next_of("rest", rows)
                continue
            p, q = (next_of(name, n * self.rank).reshape(n, -1) for name, n in (("p", rows), ("q", columns)))
            vector[start : start + rows * columns] = np.einsum("ik,jk->ij", p, q).reshape(-1)
        return vector

    def _parts(self, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield each array's offset, rows and columns; 0 columns if it is sent uncoded."""
        start = 0
        for shape in self.shapes or ((size,),):
            length = int(np.prod(shape))
            rows = shape[0] if shape else 1
            columns = length // rows if rows else 0
            smaller = self.rank * (rows + columns) < length
            yield (start, rows, columns) if smaller else (start, length, 0)
            start += length


def _orthogonal(matrix: Matrix) -> Matrix:
    """Return orthonormal columns of the same span, by Gram-Schmidt; a column that adds nothing to it is 0.

    Not by LAPACK, whose bits depend on the number of threads.
    """
    columns: list[Matrix] = []
    for column in matrix.T:
        rest = column.copy()
        for other in columns:
            rest -= (other * rest).sum() * other
        length = np.sqrt((rest**2).sum())
        negligible = length <= NEGLIGIBLE * np.sqrt((column**2).sum())
        columns.append(np.zeros_like(rest) if negligible else rest / length)
    return np.stack(columns, axis=1)


CODECS: dict[str, type[Codec]] = {
    "topk": TopK,
    "randk": RandK,
    "qsgd": Qsgd,
    "bf16": Bf16,
    "sign": Sign,
    "lowrank": LowRank,
}
"""Built-in codecs by name. To add one, import it above and enter it here."""


Arrays = Mapping[str, NDArray]


def compressed(
    codec: Codec, received: Arrays, trained: Arrays, residual: Arrays, rng: np.random.Generator
) -> tuple[ArrayRecord, dict[str, NDArray], dict[str, NDArray]]:
    """Return the codes of an update, the entries that they decode to, and the residual.

    Parameters
    ----------
    codec : Codec
        It encodes all entries as one vector.
    received, trained : Mapping[str, NDArray]
        The entries before and after training: of the same names, in the order of the message.
    residual : Mapping[str, NDArray]
        The residual e_i of earlier updates; 0 for missing entries.
    rng : np.random.Generator
        The codec's random numbers.
    """
    with np.errstate(invalid="ignore"):  # an entry may have been sent as inf, and have stayed so
        updates = {
            name: np.where(trained[name] == received[name], 0, trained[name] - received[name])
            + residual.get(name, 0)
            for name in trained
        }
    vector = _flat(updates.values())
    codec = codec.of_shapes(update.shape for update in updates.values())
    codes = codec.encode(vector, rng)
    sent = codec.decode(codes, vector.size)
    record = ArrayRecord({name: encoded(array) for name, array in codes.items()})
    return record, _added(received, sent, trained), _by_name(vector - sent, received, trained)


def decompressed(
    codec: Codec, received: Mapping[str, Array], answer: ArrayRecord, codes: ArrayRecord
) -> ArrayRecord:
    """Return the model of an answer in which some entries are encoded.

    Parameters
    ----------
    received : Mapping[str, Array]
        The model that was sent.
    answer : ArrayRecord
        The entries that were sent uncoded. The codes are for all others.
    codes : ArrayRecord
        The codes.

    Raises
    ------
    ValueError
        When the codes do not fit these entries, or decode to values that are not finite.
    """
    others = {name: viewed(array) for name, array in received.items() if name not in answer}
    if not all(array.dtype.kind == "f" for array in others.values()):
        raise ValueError("an entry is missing that is not of floating-point numbers")
    size = sum(array.size for array in others.values())
    codec = codec.of_shapes(array.shape for array in others.values())
    layout = codec.layout(size)
    if codes.keys() != layout.keys():
        raise ValueError(f"has {', '.join(codes) or 'nothing'}, expected {', '.join(layout)}")
    arrays = {}
    for name, (shape, dtype) in layout.items():
        like = np.empty(shape, dtype)
        if len(codes[name].data) != encoded_bytes(like):
            raise ValueError(f"{name}: {len(codes[name].data)} bytes, expected {encoded_bytes(like)}")
        arrays[name] = array = decoded(codes[name], like)
        if (array.shape, array.dtype) != (like.shape, like.dtype):
            raise ValueError(f"{name}: {array.dtype}{array.shape}, expected {like.dtype}{shape}")
        if not all_finite(array):
            raise ValueError(f"{name}: not finite")
    with np.errstate(over="ignore"):
        vector = codec.decode(arrays, size)
    if not np.isfinite(vector).all():
        raise ValueError("not finite")
    added = {name: encoded(array) for name, array in _added(others, vector, others).items()}
    return ArrayRecord({**answer, **added})


def _flat(arrays: Iterable[NDArray]) -> NDArray[np.float32]:
    flat = [np.asarray(array, np.float32).reshape(-1) for array in arrays]
    return np.concatenate(flat) if flat else np.zeros(0, np.float32)


def _by_name(vector: NDArray[np.float32], like: Arrays, names: Iterable[str]) -> dict[str, NDArray]:
    parts, start = {}, 0
    for name in names:
        stop = start + like[name].size
        parts[name] = vector[start:stop].reshape(like[name].shape)
        start = stop
    return parts


def _added(received: Arrays, update: NDArray[np.float32], names: Iterable[str]) -> dict[str, NDArray]:
    parts = _by_name(update, received, names)
    return {name: (received[name] + part).astype(received[name].dtype) for name, part in parts.items()}
