"""Images as tensors."""

import numpy as np

from clients import Examples
from fedbn_flower.data.images.kind import Images


def test_a_batch_is_scaled_and_standardised():
    columns = {"x": np.array([[[[0, 255]]], [[[51, 102]]]], np.uint8), "y": np.array([1, 0])}
    rows = np.array([1])
    images = Images({"classes": 2, "mean": [0.2], "std": [0.5]}, columns)
    for normalize, expected in ((True, [[[[0.0, 0.4]]]]), (False, [[[[0.2, 0.4]]]])):
        examples = Examples(columns, rows, images.prepare(rows, normalize))
        batch, labels = next(examples.load([np.array([0])]))
        np.testing.assert_allclose(batch.numpy(), expected, atol=1e-6)
        assert labels.tolist() == [0]
