"""``inspect`` of SuperNodes: counts of their data on a page."""

import logging
import re
import shutil

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedbn_flower.cli import main
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.inspection import sites
from fedbn_flower.inspection.page import Inspection
from fedbn_flower.inspection.sites import SitesInspection
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.site_facts import SiteCounts
from fedbn_flower.runtime.server_app import main as server_main

from ..circles import write_circles
from ..data.test_own_data import Sites


def nodes(folders, cache_dir):
    return [
        {"data-path": str(folder), "partition-id": i, "cache-dir": str(cache_dir)}
        for i, folder in enumerate(folders)
    ]


@pytest.fixture
def inspected(configured, cache_dir, tmp_path, monkeypatch, caplog):
    """Runs the ServerApp with ``inspect`` on sites with these data; what it found, its log and the page."""

    def run(folders, **keys):
        kept = []
        monkeypatch.setattr(
            sites, "SitesInspection", lambda *given: kept.append(SitesInspection(*given)) or kept[0]
        )
        config = configured(inspect=True, run_dir=str(tmp_path / "page"), num_clients=len(folders), **keys)
        with caplog.at_level(logging.INFO, "flwr.fedbn"):
            server_main(
                Sites(config, nodes(folders, cache_dir)),
                Context(1, 0, {}, RecordDict(), config.to_user_config()),
            )
        assert [path.name for path in (tmp_path / "page").iterdir()] == ["inspect.html"]
        return kept[0], caplog.text, (tmp_path / "page" / "inspect.html").read_text()

    return run


def test_sites_tell_what_one_place_would_have_counted(inspected, configured, write_site, tmp_path):
    for partition in (0, 1):
        write_site(configured(), partition, tmp_path / f"site-{partition}")
    found, log, page = inspected([tmp_path / "site-0", tmp_path / "site-1"], dataset="shape:1x8x8:10")
    here = Inspection(inputs_of(configured()))
    np.testing.assert_array_equal(found.counts, here.counts)
    assert found.sizes["training examples"] == here.sizes["training examples"]
    for feature, expected in zip(found.features, here.features, strict=True):
        np.testing.assert_array_equal(feature.counts, expected.counts)
        assert feature.name == expected.name
    facts, expected = found.facts(), here.facts()
    del facts["test examples"], expected["test examples"]  # each site has the whole test set
    assert facts == expected
    assert re.search(r"label skew, total variation: mean 0\.500, at most 0\.50\d", log)
    assert "The data of 2 SuperNodes, by counts; nothing else has left them." in page
    assert page.count("<svg") == 2
    assert "<h2>Images</h2>" not in page


def test_masks_are_counted_by_pixels(inspected, configured, tmp_path):
    sites = write_circles(tmp_path / "sites", ("train", "test"))
    pooled = Inspection(inputs_of(configured(dataset=str(sites), partition="natural:folder", model="unet")))
    folders = []
    for name in pooled.names:
        folder = tmp_path / name
        for split in ("train", "test"):
            shutil.copytree(sites / split / name, folder / split)
        folders.append(folder)
    found, _, _ = inspected(
        folders, dataset=f"shape:{'x'.join(map(str, pooled.inputs.dataset.spec.shape))}:2:masks"
    )
    np.testing.assert_array_equal(found.shares, pooled.shares)


def test_of_a_table_categories_and_missing_values_are_counted_and_no_number_leaves(inspected, tmp_path):
    tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    tables[0].write_text("age,sex,outcome\n" + "61.5,f,1\n,m,0\n44.25,m,0\n" * 4)
    tables[1].write_text("age,sex,outcome\n" + "30.75,f,1\n,f,0\n" * 5)
    keys = {"columns": "age,sex=f|m", "label_column": "outcome", "dataset": "shape:3:2"}
    found, _, page = inspected(tables, **keys)
    age, sex = found.features
    rows = found.sizes["training examples"]
    np.testing.assert_array_equal(sex.counts.sum(1), rows)
    np.testing.assert_array_equal(age.counts[:, 0] + age.missing, rows)
    assert sex.counts[1, 1] == 0 < sex.counts[0, 1]
    sent = "".join(site.model_dump_json() for site in found.sites.values())
    assert not [value for value in ("61.5", "44.25", "30.75") if value in sent]
    assert "Missing values by client" in page


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"train": 0}, "greater than or equal to 1"),
        ({"classes": [1, 2]}, "2 classes are counted"),
        ({"classes": [0] * 10}, "0 examples have a class, of 721"),
        ({"features": []}, "it has other features than the others"),
        ({"train": 2**60}, r"at most 9007199254740992"),
        ({"classes": [721] + [2**61] + [0] * 8}, "examples have a class, of 721"),
    ],
)
def test_counts_that_cannot_be_cost_their_site(
    inspected, configured, write_site, tmp_path, monkeypatch, changed, reason
):
    write_site(configured(), 0, tmp_path / "site")
    honest = SiteCounts.of
    told = []

    def lie(inputs, partition):
        told.append(1)
        return honest(inputs, partition).model_copy(update=changed if len(told) == 2 else {})

    monkeypatch.setattr(SiteCounts, "of", lie)
    found, log, page = inspected([tmp_path / "site"] * 2, dataset="shape:1x8x8:10")
    assert re.search(rf"query.counts: (partition|site) 1: .*{reason}.*: left out", log)
    assert list(found.sites) == [0]
    assert "The data of 1 SuperNodes" in page


def test_without_counts_there_is_no_page(inspected, configured, write_site, tmp_path, monkeypatch):
    write_site(configured(), 0, tmp_path / "site")
    monkeypatch.setattr(SiteCounts, "model_dump_json", lambda self: "[" * 10**5)
    with pytest.raises(RunFailed, match=r"query.counts: partition 0: .*; query.counts: partition 1: "):
        inspected([tmp_path / "site"] * 2, dataset="shape:1x8x8:10")


@pytest.mark.slow
def test_data_that_the_server_has_need_no_question(configured, tmp_path):
    config = configured(inspect=True, run_dir=str(tmp_path / "page"), partition="iid")
    server_main(Sites(config, [{}, {}]), Context(1, 0, {}, RecordDict(), config.to_user_config()))
    page = (tmp_path / "page" / "inspect.html").read_text()
    assert "digits divided by iid among 2 clients" in page


def test_where_nothing_is_asked_the_key_is_refused(configured, capsys):
    assert main(["--inspect", "true"]) == 2
    assert "inspect: True is not allowed; expected false: simulated clients are" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"^inspect: True is not allowed; expected false, since counts"):
        configured(inspect=True, dp="client", dp_epsilon=1.0, dp_delta=1e-5, client="fedbn")
