"""Schedules of a learning rate: the factor on it in round t of T, a function of t and T only.

| schedule | factor |
|---|---|
| ``constant`` | 1 |
| ``cosine:MIN`` | MIN + (1 - MIN) (1 + cos(pi (t - 1) / T)) / 2 |
| ``linear:MIN`` | 1 - (1 - MIN) (t - 1) / T |
| ``step:EVERY:FACTOR`` | FACTOR to the power of floor((t - 1) / EVERY) |
| ``exponential:FACTOR`` | FACTOR to the power of t - 1 |
| ``warmup:N+S`` | t / (N + 1) up to round N; then that of S in round t - N of T - N |

All begin at 1 after the warm-up, and cosine and linear come to MIN one round after the last: no round has a
rate of 0. Cosine is `torch.optim.lr_scheduler.CosineAnnealingLR` with a step a round and ``T_max`` T.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

CONSTANT = "constant"
FORMS = (
    "constant, cosine[:MIN], linear[:MIN], step:EVERY:FACTOR, exponential:FACTOR, or warmup:N+ before one of "
    "these (0 <= MIN <= 1, FACTOR > 0, whole EVERY and N >= 1)"
)


def _cosine(t: int, rounds: int, low: float = 0.0) -> float:
    return low + (1 - low) * (1 + math.cos(math.pi * (t - 1) / rounds)) / 2


def _linear(t: int, rounds: int, low: float = 0.0) -> float:
    return 1 - (1 - low) * (t - 1) / rounds


def _step(t: int, rounds: int, every: float, factor: float) -> float:
    return factor ** ((t - 1) // int(every))


def _exponential(t: int, rounds: int, factor: float) -> float:
    return factor ** (t - 1)


def _is_share(value: float) -> bool:
    return 0 <= value <= 1


def _is_factor(value: float) -> bool:
    return 0 < value < math.inf


def _is_count(value: float) -> bool:
    return value >= 1 and value % 1 == 0


Check = Callable[[float], bool]
_SHAPES: dict[str, tuple[Callable[..., float], tuple[Check, ...], int]] = {
    CONSTANT: (lambda t, rounds: 1.0, (), 0),
    "cosine": (_cosine, (_is_share,), 0),
    "linear": (_linear, (_is_share,), 0),
    "step": (_step, (_is_count, _is_factor), 2),
    "exponential": (_exponential, (_is_factor,), 1),
}
"""By name: the factor, what its arguments may be, and how many of them are needed."""


@dataclass(frozen=True)
class Schedule:
    """A schedule: ``warmup`` rounds, then a shape with its arguments."""

    shape: str
    arguments: tuple[float, ...] = ()
    warmup: int = 0

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Parse the value of a key.

        Raises
        ------
        ValueError
            For any other form than `FORMS`.
        """
        rise, plus, after = text.partition("+")
        warmup = _warmup(rise) if plus else 0
        shape, *arguments = (after if plus else text).split(":")
        numbers = tuple(map(float, arguments))
        _, checks, needed = _SHAPES.get(shape, (None, (), 1))
        if not needed <= len(numbers) <= len(checks):
            raise ValueError(text)
        if not all(check(number) for check, number in zip(checks, numbers, strict=False)):
            raise ValueError(text)
        return cls(shape, numbers, warmup)

    @property
    def goes_by_rounds(self) -> bool:
        """Whether the factor of a round depends on how many rounds there are."""
        return self.shape in ("cosine", "linear")

    def factor(self, server_round: int, rounds: int) -> float:
        """Return the factor in round ``server_round``, 1, 2, ..., of ``rounds``."""
        if server_round <= self.warmup:
            return server_round / (self.warmup + 1)
        shape, _, _ = _SHAPES[self.shape]
        return shape(server_round - self.warmup, rounds - self.warmup, *self.arguments)

    def misfit(self, rate: float, rounds: int) -> str:
        """Return what is allowed in place of a schedule that does not fit the number of rounds; else ''."""
        if self.warmup >= rounds:
            return f"a warm-up of fewer rounds than the run's {rounds}"
        try:
            last = rate * self.factor(rounds, rounds)
        except OverflowError:
            last = math.inf
        fits = 0 < last < math.inf
        return (
            "" if fits else f"a rate that is positive and finite; in round {rounds}, the last, it is {last}"
        )


def _warmup(text: str) -> int:
    """Return N of ``warmup:N``; ValueError for anything else."""
    word, _, rounds = text.partition(":")
    if word != "warmup" or int(rounds) < 1:
        raise ValueError(text)
    return int(rounds)
