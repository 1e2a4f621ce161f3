"""Images with numbers to predict: regression."""

import json

import numpy as np
import pytest

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (60, 8, 8)).astype(np.uint8)
BRIGHTNESS = X.mean((1, 2)) / 255


@pytest.mark.parametrize("y", [BRIGHTNESS, np.stack([BRIGHTNESS, 2 * BRIGHTNESS, -BRIGHTNESS], 1)])
def test_they_are_learnt_and_scored_as_numbers(run, y):
    result = run(data=(X, y, X[:20], y[:20]), client="fedbn", normalize=True, augment="crop-flip")
    config = json.loads((result.folder / "config.json").read_text())
    assert config["partition"] == "iid"
    assert set(result.summary["mean"]) == {"loss", "mae"}
    outputs = y.reshape(60, -1).shape[1]
    assert config["shape"] == f"shape:1x8x8:{outputs}:numbers"
