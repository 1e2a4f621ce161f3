"""The streaming mean against the same sum written out."""

import numpy as np
import pytest

from strategies.vectors import BLOCK, LONG, TOGETHER, WeightedMean


@pytest.mark.parametrize("size", [10, BLOCK + 1, LONG * BLOCK + 3])
@pytest.mark.parametrize("count", [1, TOGETHER, TOGETHER + 3])
def test_models_added_together_are_summed_one_after_the_other(size, count):
    rng = np.random.default_rng(0)
    models = rng.standard_normal((count, size), np.float32)
    reference = rng.standard_normal(size, np.float32)
    mean, expected = WeightedMean(reference), np.zeros(size, np.float32)
    for i, model in enumerate(models):
        mean.add([model[:4].reshape(2, 2), model[4:]], weight=i + 1, factor=0.5)
        expected += np.float32(0.5 * (i + 1)) * (model - reference)
    expected /= count * (count + 1) / 2
    np.testing.assert_array_equal(mean.mean(), expected)
