"""What the server knows beforehand of what its clients report."""

from fedbn_flower.clients import Problem
from fedbn_flower.strategies import ExpectedMetrics, Range
from fedbn_flower.strategies.checks import MAX_WEIGHT
from fedbn_flower.strategies.wire import (
    CLASS_EXAMPLES,
    CLASS_HITS,
    LOCAL_STEPS,
    LOSS,
    NUM_EXAMPLES,
    SENT_BYTES,
    TRAIN_EXAMPLES,
)

from .assembly import TEST
from .columns import CLIENT_COLUMNS, CLIENT_MEAN, COSTS, DEVIATION, GLOBAL, ROUND_COLUMNS, WORST, WORST_TENTH

FURTHER, LONGEST = 100, 10_000
"""How many further metrics a client may report at a time, and how many numbers their lists may hold."""
ROUNDED = 1e-6  # by which a share of many may be off


def expected_metrics(problem: Problem, classes: int) -> ExpectedMetrics:
    """What clients may report of a problem, of ``classes`` classes or 0.

    The loss that is minimised may be any number: objectives add terms to it.
    """
    held_out = {name: Range(0.0) for name in problem.figures}
    for name, (low, high) in problem.ranges.items():
        held_out[name] = Range(low, high * (1 + ROUNDED))
    ranges = {prefix + name: known for prefix in ("", f"{TEST}-") for name, known in held_out.items()}
    ranges |= {f"train-{name}": Range() if name == LOSS else known for name, known in held_out.items()}
    ranges[NUM_EXAMPLES] = Range(1, MAX_WEIGHT, whole=True)
    for name in (TRAIN_EXAMPLES, "eval-examples", f"{TEST}-examples"):
        ranges[name] = Range(0, MAX_WEIGHT, whole=True)
    ranges[LOCAL_STEPS] = Range(0, MAX_WEIGHT)
    if classes:
        counts = Range(0, MAX_WEIGHT, whole=True, length=classes)
        ranges |= {
            prefix + name: counts for prefix in ("", f"{TEST}-") for name in (CLASS_HITS, CLASS_EXAMPLES)
        }
    return ExpectedMetrics(
        ranges,
        frozenset({*ROUND_COLUMNS, *COSTS, *CLIENT_COLUMNS, SENT_BYTES}),
        (GLOBAL, CLIENT_MEAN, WORST, WORST_TENTH, DEVIATION),
        FURTHER,
        LONGEST,
    )
