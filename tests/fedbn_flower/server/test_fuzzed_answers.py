"""Answers of all phases with anything in them, from seeds: none ends in a traceback or harms the honest."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from ...strategies.messages.lies import ENTRY_LIES, EXPLODED
from .hostile import REFUSED, accuracy, counts, evaluate, identity, moments, train

TIMES = 100
PHASES = {
    "identity": identity, "moments": moments, "counts": counts, "train": train, "evaluate": evaluate,
    "accuracy": accuracy,
}  # fmt: skip
TEXTS = ["", "\x1b[2J\x1b]0;owned\x07", "x\n" * 300_000, "/srv/ward/7/scan.dcm", "\ud800", "{}", "[" * 9999]
NUMBERS = [0, -1, 1, 2, 5, 10, 0.5, 1e300, -3e38, 2**53, 2**62, -(2**63), 10**30, np.nan, np.inf, -np.inf]


def value(rng):
    """A value that a ConfigRecord may have."""
    kind = rng.integers(4)
    if kind == 0:
        return TEXTS[rng.integers(len(TEXTS))]
    if kind == 1:
        return [1.0] * int(rng.integers(5))
    return NUMBERS[rng.integers(len(NUMBERS))] if kind == 2 else bytes(rng.bytes(9))


def record_of(rng):
    """A record of any kind."""
    kind = rng.integers(3)
    if kind == 0:
        return ArrayRecord({str(i): Array(np.zeros(int(rng.integers(9)))) for i in range(rng.integers(4))})
    if kind == 1:
        return MetricRecord({"num-examples": NUMBERS[rng.integers(len(NUMBERS))]})
    return ConfigRecord({"a": value(rng)})


def changed_text(rng, text):
    """JSON with one value replaced, or bytes."""
    if rng.random() < 0.5:
        place = int(rng.integers(len(text)))
        return text[:place] + TEXTS[rng.integers(len(TEXTS))] + text[place + int(rng.integers(3)) :]
    found = json.loads(text)
    key = list(found)[rng.integers(len(found))]
    numbers = [n for n in NUMBERS if isinstance(n, int)]
    found[key] = [numbers[rng.integers(len(numbers))], [numbers[rng.integers(len(numbers))]], "x", None][
        rng.integers(4)
    ]
    return json.dumps(found)


def changed(rng, record):
    """A record in which one entry is another, missing, or more."""
    entries = dict(record)
    key = list(entries)[rng.integers(len(entries))]
    if isinstance(record, ArrayRecord):
        lies = list(ENTRY_LIES)
        entries[key] = ENTRY_LIES[lies[rng.integers(len(lies))]](rng, np.atleast_1d(record[key].numpy()))
        return ArrayRecord(entries)
    if isinstance(record, MetricRecord):
        number = NUMBERS[rng.integers(len(NUMBERS))]
        entries[key] = [number] * int(rng.integers(1, 4)) if rng.random() < 0.3 else number
        if rng.random() < 0.2:
            del entries[key]
        if rng.random() < 0.1:
            entries["\x1b[2J"] = number
        return MetricRecord(entries)
    text = isinstance(entries[key], str) and rng.random() < 0.7
    entries[key] = changed_text(rng, entries[key]) if text else value(rng)
    return ConfigRecord(entries)


def fuzzed(seed):
    """A lie: the honest records, or states and metrics, of which something is other."""
    rng = np.random.default_rng(seed)

    def lie(content):
        kind = rng.random()
        if kind < 0.08:
            return TEXTS[rng.integers(len(TEXTS))]
        name = list(content)[rng.integers(len(content))]
        if isinstance(content[name], dict) and not isinstance(
            content[name], ArrayRecord | MetricRecord | ConfigRecord
        ):
            return in_plain(rng, content, name)
        if kind < 0.16:
            return {key: record for key, record in content.items() if key != name}
        if kind < 0.24:
            return {**content, name: record_of(rng)}
        return {**content, name: changed(rng, content[name])}

    return lie


def in_plain(rng, content, name):
    """The same of the metrics and states of an evaluation, which are not yet records."""
    some = dict(content[name])
    key = list(some)[rng.integers(len(some))]
    number = NUMBERS[rng.integers(len(NUMBERS))]
    if name == "states":
        state = np.array(some[key], np.float64)
        state[tuple(rng.integers(n) for n in state.shape)] = min(max(float(number), -1e300), 1e300)
        with np.errstate(invalid="ignore"):
            some[key] = state.astype(some[key].dtype)
    else:
        some[key] = [number] * len(some[key]) if isinstance(some[key], list) else number
    if rng.random() < 0.1:
        del some[key]
    return {**content, name: some}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("phase", PHASES)
def test_no_answer_ends_in_a_traceback(phase):
    """Each phase checks besides that a refused site has cost the others nothing."""
    outcomes = [PHASES[phase](fuzzed(seed)) for seed in range(TIMES)]
    assert outcomes.count(REFUSED) > TIMES / 5
    assert not EXPLODED
