"""Mean and deviation for ``normalize`` where sites have data of their own."""

import json
from functools import reduce
from operator import add

import numpy as np
import pytest

from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.data.images.moments import Moments
from fedbn_flower.data.numeric import FeatureMoments
from fedbn_flower.data.scales import median_scale, notable, pooled_scale
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.resume import load_checkpoint
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from fedbn_flower.server.questions import _of_one_kind
from fedbn_flower.site.inputs import inputs_at

from .test_own_data import Sites, folders  # noqa: F401

SHAPE = {"dataset": "shape:1x8x8:10", "client": "shared", "normalize": True}


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
    """Asked once, before round 1; the model has the bits of a simulation that sees all images.

    The first site has classes 0-4 only: the run says that there are ten.
    """
    simulated = configured(client="shared", normalize=True)
    expected = Federation(simulated).run(InlineGrid(2, simulated.to_user_config()), [])
    (tmp_path / "run").mkdir()
    config = configured(**SHAPE)
    federation, grid = Federation(config), sites(config)
    results = RunFolder(tmp_path / "run", federation)
    got = federation.run(grid, [results])
    results.finish()
    assert not (tmp_path / "run" / "partitions.png").exists()
    assert '"global": null' in (tmp_path / "run" / "summary.json").read_text()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name].numpy(), array.numpy())
    told = [m.metadata.message_type for m in grid.messages[:5]]
    assert told == ["query.names"] * 2 + ["query.moments"] * 2 + ["train"]
    facts = inputs_of(simulated).dataset.kind.facts
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())["normalization"]
    assert kept == {"feature-mean": facts["mean"], "feature-std": facts["std"]}
    assert all(m.content["config"]["feature-mean"] == facts["mean"] for m in grid.messages[4:])

    more = configured(**SHAPE, resume=str(tmp_path / "run")).model_copy(update={"rounds": 3})
    checkpoint = load_checkpoint(more, clients_here=False)
    grid = sites(more)
    Federation(more).run(grid, [], checkpoint)
    assert [m.metadata.message_type for m in grid.messages[:3]] == ["query.names"] * 2 + ["train"]
    assert grid.messages[2].content["config"]["feature-std"] == facts["std"]


def test_without_normalize_nobody_is_asked_for_moments(configured, sites):
    config = configured(**SHAPE | {"normalize": False, "rounds": 1})
    grid = sites(config)
    Federation(config).run(grid, [])
    assert {m.metadata.message_type for m in grid.messages} == {"query.names", "train", "evaluate"}
    assert "feature-mean" not in grid.messages[2].content["config"]


@pytest.mark.parametrize(
    ("path", "why"),
    [("/srv/ward 7/nowhere.csv", "'nowhere.csv'"), ("", "missing; expected a data-path in the n")],
)
def test_a_site_that_does_not_answer_is_left_out(configured, sites, caplog, path, why):
    config = configured(**SHAPE, rounds=1)
    failing, federation = sites(config), Federation(config)
    failing.contexts[1].node_config["data-path"] = path
    federation.run(failing, [])
    alone = Moments.of(images_of(failing.contexts[0].node_config)).scale()
    kept = {"feature-mean": list(alone.mean), "feature-std": list(alone.std)}
    assert federation.totals.normalization == kept
    (line,) = [text for text in caplog.messages if text.startswith("query.moments: partition 1: ")]
    assert line.endswith(": left out")
    assert why in line
    said = [text for text in caplog.messages if not text.startswith("refused: ")]  # what sites log is theirs
    assert not [text for text in said if "/srv" in text]


def test_if_no_site_answers_that_ends_the_run(configured, sites):
    config = configured(**SHAPE, rounds=1)
    silent = sites(config)
    silent.work = lambda messages, timeout: iter(())
    with pytest.raises(RunFailed, match=r"no answer within .* from partition 0, partition 1"):
        Federation(config).run(silent, [])


def test_a_site_with_data_of_another_kind_than_most_is_left_out(caplog):
    assert _of_one_kind({3: "images", 5: ("numbers",), 8: "images"}) == {3: "images", 8: "images"}
    assert caplog.messages == ["query.moments: site 5: data of another kind than the others': left out"]


def images_of(node_config):
    """The training images of a site."""
    config = run_config({"dataset": "shape:1x8x8:10"})
    return inputs_at(config, node_config).dataset.train.columns["x"]


@pytest.mark.parametrize(
    ("sums", "reason"),
    [
        ({"squares": np.array([np.nan])}, "finite numbers"),
        ({"sums": np.array([1, 1])}, "of 1 channels"),
        ({"sums": np.array([2.0**60])}, "no images"),
        ({"sums": np.array([5.0]), "squares": np.array([5.0])}, "no images"),
        ({"count": np.array([0.0])}, r"0 values, not a whole number in \[1, 100\]"),
        ({"count": np.array([4.5])}, r"4.5 values, not a whole number in \[1, 100\]"),
        ({"count": np.array([101.0])}, r"101 values, not a whole number in \[1, 100\]"),
    ],
)
def test_sums_that_no_images_have_are_refused(sums, reason):
    right = {"count": np.array([4.0]), "sums": np.array([6.0]), "squares": np.array([14.0])}
    assert Moments.received(right, 1).count == 4
    with pytest.raises(ValueError, match=reason):
        Moments.received(right | sums, 1, 100)


def test_text_cannot_be_normalised(configured):
    config = configured(
        dataset="shape:80:97:characters", model="char-lstm-small", normalize=True, client="shared"
    )
    with pytest.raises(UserError, match=r"normalize: True .* the data are 80 characters of 97"):
        Federation(config).run(Sites(config, [{"partition-id": 0}, {"partition-id": 1}]), [])


def of_values(*values):
    return FeatureMoments.of(np.array(values, np.float32).reshape(len(values), -1), range(1))


def test_the_median_site_by_hand():
    """Means 1, 2 and 1e30, deviations 1, 0 and 0; one site has no value, and does not count."""
    sites = [of_values(0, 2), of_values(2, 2), of_values(1e30), of_values(np.nan)]
    assert median_scale(sites) == ((2.0,), (1.0,))
    assert median_scale(sites[:2]) == ((1.5,), (0.5,))
    assert median_scale(sites[3:]) == ((0.0,), (0.0,))
    assert pooled_scale(sites[:2]).mean == (1.5,)


def test_images_of_the_median_site_by_hand():
    """Intensities 0 and 102, 51, 255: means 0.2, 0.2, 1; deviations 0.2, 0, 0: the median is 0."""
    parts = [[[[[0, 102]]]], [[[[51, 51]]]], [[[[255, 255]]]]]
    assert median_scale([Moments.of(np.array(part, np.uint8)) for part in parts]) == ((0.2,), (1.0,))


def test_whoever_decides_or_is_far_is_named():
    honest = {f"site {i}": of_values(*np.arange(10) + i) for i in range(3)}
    assert list(notable(honest)) == []
    (line,) = notable(honest | {"site 9": of_values(*[5.0] * 31)})
    assert line == "site 9 has 50.8% of all values"
    (line,) = notable(honest | {"site 9": of_values(3e38)})
    assert line.startswith("site 9 is far from the others: feature 0 has mean 3e+38 and deviation 0 there")
    (line,) = notable(honest | {"site 9": of_values(-1e6, 1e6)})
    assert "deviation 1e+06 there" in line
    two = {"a": of_values(*range(9)), "b": of_values(1)}
    assert list(notable(two)) == []
    two["a"] = of_values(*range(10))
    assert list(notable(two)) == ["a has 90.9% of all values"]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"means": [np.inf, 0]}, "finite numbers"),
        ({"counts": [1.0]}, "of 2 features"),
        ({"counts": [1.5, 0]}, "whole numbers"),
        ({"counts": [101, 0]}, r"101 values, not whole numbers in \[0, 100\]"),
        ({"squares": [1.1e77, 0]}, "no numbers have such moments"),
        ({"squares": [-1, 0]}, "no numbers have such moments"),
        ({"means": [1e39, 0]}, "no numbers have such moments"),
        ({"means": [1, 1]}, "no numbers have such moments"),
        ({"counts": [0, 0], "means": [0, 0], "squares": [0, 0]}, "no numbers have such moments"),
    ],
)
def test_moments_that_no_numbers_have_are_refused(lie, reason):
    right = {"counts": [4, 0], "means": [3e38, 0], "squares": [0, 0]}
    good, bad = (
        {name: np.array(values, float) for name, values in one.items()} for one in (right, right | lie)
    )
    assert FeatureMoments.received(good, 2, 100).scale().mean[1] == 0
    with pytest.raises(ValueError, match=reason):
        FeatureMoments.received(bad, 2, 100)


def test_sites_and_a_simulation_have_the_scale_of_the_median_client(configured, sites, tmp_path):
    """Of two clients, that is the mean of both; bits alike."""
    simulated = configured(client="shared", normalize="median", rounds=1)
    places = [{"data-path": str(tmp_path / f"site-{i}")} for i in (0, 1)]
    config = configured(**SHAPE | {"normalize": "median", "rounds": 1})
    grid = sites(config)
    scales = [Moments.of(images_of(folder)).scale() for folder in places]
    facts = inputs_of(simulated).dataset.kind.facts
    assert facts["mean"] == pytest.approx(np.mean([s.mean for s in scales], 0))
    assert facts["std"] == pytest.approx(np.mean([s.std for s in scales], 0))
    expected = Federation(simulated).run(InlineGrid(2, simulated.to_user_config()), [])
    federation = Federation(config)
    got = federation.run(grid, [])
    kept = {"feature-mean": list(facts["mean"]), "feature-std": list(facts["std"])}
    assert federation.totals.normalization == kept
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name].numpy(), array.numpy())


@pytest.mark.parametrize(
    ("value", "kept"), [("true", True), ("false", False), (True, True), ("median", "median"), ("1", True)]
)
def test_the_key_takes_true_false_and_median(configured, value, kept):
    assert configured(normalize=value).normalize == kept
    assert configured(normalize=value).to_user_config()["normalize"] == kept
    with pytest.raises(UserError, match="normalize: 'mean' is not allowed; expected true, false or 'median'"):
        configured(normalize="mean")
