"""Mean and deviation for ``normalize`` where sites have data of their own."""

import json
from functools import reduce
from operator import add

import numpy as np
import pytest

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.data.images.moments import Moments
from fedbn_flower.federation.federation import Federation
from fedbn_flower.federation.inputs import inputs_of
from fedbn_flower.results.resume import load_checkpoint
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime import InlineGrid

from .test_own_data import Sites, folders  # noqa: F401

SHAPE = {"dataset": "shape:1x8x8:10", "client": "fedavg", "normalize": True}


@pytest.fixture
def sites(configured, folders, tmp_path):  # noqa: F811
    """Makes the grid of the two sites, which notes its messages."""

    class Noting(Sites):
        def __init__(self, config):
            cache = {"cache-dir": str(tmp_path / "cache")}
            configs = [{"data-path": str(f), "partition-id": i, **cache} for i, f in enumerate(folders)]
            super().__init__(config, configs)
            self.messages = []

        def work(self, messages, timeout):
            self.messages += messages
            yield from super().work(messages, timeout)

    return Noting


def test_moments_of_parts_add_up_to_the_bits_of_all():
    images = np.random.default_rng(0).integers(0, 256, (300, 3, 5, 4), np.uint8)
    whole = Moments.of(images).scale()
    parts = reduce(add, [Moments.of(part) for part in np.split(images, [7, 8, 200])]).scale()
    assert parts == whole
    values = images.transpose(1, 0, 2, 3).reshape(3, -1) / 255
    np.testing.assert_allclose(whole.mean, values.mean(1), rtol=1e-12)
    np.testing.assert_allclose(whole.std, values.std(1), rtol=1e-12)


def test_a_constant_channel_has_the_deviation_1():
    assert Moments.of(np.full((2, 1, 3, 3), 51, np.uint8)).scale() == ((0.2,), (1.0,))


def test_sites_standardise_as_one_place_would(configured, sites, tmp_path):
    """Asked once, before round 1; the model has the bits of a simulation that sees all images."""
    simulated = configured(client="fedavg", normalize=True)
    expected = Federation(simulated).run(InlineGrid(2, simulated.to_user_config()), [])
    (tmp_path / "run").mkdir()
    config = configured(**SHAPE)
    federation, grid = Federation(config), sites(config)
    results = RunFolder(tmp_path / "run", federation)
    got = federation.run(grid, [results])
    results.finish()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name].numpy(), array.numpy())
    assert [m.metadata.message_type for m in grid.messages[:3]] == ["query.moments"] * 2 + ["train"]
    facts = inputs_of(simulated).dataset.kind.facts
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())["normalization"]
    assert kept == {"feature-mean": facts["mean"], "feature-std": facts["std"]}
    assert all(m.content["config"]["feature-mean"] == facts["mean"] for m in grid.messages[2:])

    more = configured(**SHAPE, resume=str(tmp_path / "run")).model_copy(update={"rounds": 3})
    checkpoint = load_checkpoint(more, clients_here=False)
    grid = sites(more)
    Federation(more).run(grid, [], checkpoint)
    assert [m.metadata.message_type for m in grid.messages[:1]] == ["train"]
    assert grid.messages[0].content["config"]["feature-std"] == facts["std"]


def test_without_normalize_nobody_is_asked(configured, sites):
    config = configured(**SHAPE | {"normalize": False, "rounds": 1})
    grid = sites(config)
    Federation(config).run(grid, [])
    assert {m.metadata.message_type for m in grid.messages} == {"train", "evaluate"}
    assert "feature-mean" not in grid.messages[0].content["config"]


def test_a_site_that_does_not_answer_ends_the_run(configured, sites):
    config = configured(**SHAPE)
    silent, failing = sites(config), sites(config)
    silent.work = lambda messages, timeout: iter(())
    with pytest.raises(RunFailed, match=r"no answer within .* from partition 0, partition 1"):
        Federation(config).run(silent, [])
    failing.contexts[1].node_config["data-path"] = "nowhere.csv"
    with pytest.raises(RunFailed, match=r"query.moments: partition 1: .*no such file or folder"):
        Federation(config).run(failing, [])


@pytest.mark.parametrize(
    ("sums", "reason"),
    [
        ({"squares": np.array([np.nan])}, "finite numbers"),
        ({"sums": np.array([1, 1])}, "of 1 channels"),
        ({"sums": np.array([2.0**60])}, "no images"),
        ({"sums": np.array([5.0]), "squares": np.array([5.0])}, "no images"),
        ({"count": np.array([0.0])}, "no images"),
    ],
)
def test_sums_that_no_images_have_are_refused(sums, reason):
    right = {"count": np.array([4.0]), "sums": np.array([6.0]), "squares": np.array([14.0])}
    assert Moments.received(right, 1).count == 4
    with pytest.raises(ValueError, match=reason):
        Moments.received(right | sums, 1)


def test_text_cannot_be_normalised(configured):
    config = configured(
        dataset="shape:80:97:characters", model="char-lstm-small", normalize=True, client="fedavg"
    )
    with pytest.raises(UserError, match=r"normalize: True .* the data are 80 characters of 97"):
        Federation(config).run(Sites(config, [{"partition-id": 0}, {"partition-id": 1}]), [])
