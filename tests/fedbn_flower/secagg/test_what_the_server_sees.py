"""From what the server receives, two very different clients cannot be told apart; without masks they can."""

import os

import numpy as np
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from fedbn_flower.secagg.cryptography import LENGTH, mask

SIZE, SEEN = 32, 800


def accuracy(seen, whose):
    """Of a classifier trained on half of what was seen, on the other half."""
    scaled = seen.astype(np.float64) / 2**31 - 1
    half = len(seen) // 2
    model = LogisticRegression(max_iter=1000).fit(scaled[:half], whose[:half])
    return round(model.score(scaled[half:], whose[half:]) * half), half


def test_a_classifier_of_masked_vectors_is_right_by_chance_alone():
    rng = np.random.default_rng(0)
    whose = rng.integers(2, size=SEEN)
    centres = np.array([[2**30] * SIZE, [2**31 + 2**30] * SIZE], np.uint32)
    vectors = centres[whose] + rng.integers(2**20, size=(SEEN, SIZE), dtype=np.uint32)
    right, of = accuracy(vectors, whose)
    assert right == of
    masked = [mask(vector, os.urandom(LENGTH), {1: os.urandom(LENGTH)}, 0) for vector in vectors]
    right, of = accuracy(np.array(masked), whose)
    assert binom.ppf(1e-6, of, 0.5) <= right <= binom.ppf(1 - 1e-6, of, 0.5)
