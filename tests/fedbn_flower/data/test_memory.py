"""What memory cannot hold is one line, before it is made."""

import pytest

from fedbn_flower.cli import main
from fedbn_flower.core import free_memory
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.inputs import inputs_of

DIGITS, TRAIN, PIXELS = 1797, 1437, 64


@pytest.mark.parametrize("dataset", ["digits", "scanners"])
def test_digits_of_any_size_are_compared_with_the_memory(capsys, cache_dir, dataset):
    assert main(["--dataset", dataset, "--image-size", "100000", "--cache-dir", str(cache_dir)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "error: image-size: too large: 1,797 digits of 100000x100000 would take 50,207.6 GiB"
    )


@pytest.mark.parametrize("spare", [-1, 0])
def test_resized_digits_are_there_three_times(configured, monkeypatch, tmp_path, spare):
    """Each by itself, all of them, and the two splits."""
    monkeypatch.setattr(free_memory, "available_memory", lambda: 3 * DIGITS * 10**2 + spare)
    config = configured(image_size=10, cache_dir=str(tmp_path / "cache"))
    if spare < 0:
        with pytest.raises(UserError, match="^image-size: too large: 1,797 digits of 10x10 would take"):
            _ = inputs_of(config).dataset
    else:
        assert inputs_of(config).dataset.spec.shape == (1, 10, 10)


@pytest.mark.parametrize("spare", [-1, 0])
def test_each_domain_is_a_copy_of_the_images_and_so_is_their_mixture(configured, monkeypatch, spare):
    config = configured(feature_shift="none+inverted+noisy" if spare else "none+inverted+noisy+rotated")
    copies = 4 if spare else 5
    monkeypatch.setattr(free_memory, "available_memory", lambda: copies * TRAIN * PIXELS + spare)
    if spare < 0:
        with pytest.raises(UserError, match="^feature-shift: too large: 4 copies of the images would take"):
            _ = inputs_of(config).dataset
    else:
        assert len(inputs_of(config).dataset.train) == TRAIN
