"""Searches killed (-9) at each change of their files, and on Ray: the same table.

References on Ray: the same bits.
"""

import json
import shutil

import pytest

pytest.importorskip("fedbn_flower.search")

from fedbn_flower import cli
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..fedbn_flower.search.conftest import table
from .deaths import snapshots
from .processes import bits
from .test_kills import check_whole

pytestmark = pytest.mark.slow

JOB = (
    *("--strategy", "fedadam", "--client", "fedbn", "--num-clients", 4, "--partition", "dirichlet:0.5"),
    *(
        "--rounds",
        4,
        "--local-epochs",
        1,
        "--search",
        "server-lr=1e-3..1",
        "--search",
        "batch-size=16..64",
        "--trials",
        9,
    ),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache_dir, pictures_never_drawn):
    """The folder of the search that nothing stopped."""
    folder = tmp_path_factory.mktemp("search") / "whole"
    words = (*JOB, "--cache-dir", cache_dir, "--backend", "inline", "--run-dir", folder)
    assert cli.main([str(word) for word in words]) == 0
    assert {row["state"] for row in table(folder)} == {"complete", "pruned"}
    return folder


@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
def test_killed_at_each_change_of_its_files_a_search_ends_in_the_same_table(tmp_path, cache_dir, monkeypatch):
    """Of its own files, and between them: where a trial begins, and where its last checkpoint is made."""
    monkeypatch.chdir(tmp_path)
    whole, parts, left = (tmp_path / name for name in ("whole", "parts", "left"))
    job = ("--search", "server-lr=1e-3..1", "--trials", 2, "--strategy", "fedadam", "--rounds", 1)
    job = (*job, "--local-epochs", 1, "--cache-dir", cache_dir, "--backend", "inline", "--run-dir", parts)
    changes = snapshots(parts, job, left)
    parts.rename(whole)
    own = ("search.json", "search.csv", "config.json", "server.safetensors")
    tried = [place for place, change in enumerate(changes) if change.endswith(own)]
    assert len(tried) == 3 + 2 + 2 * 3
    for last in tried:
        (left / str(last)).rename(parts)
        check_whole(parts)
        again = ["--resume", parts]
        if not (parts / "search.json").exists():
            shutil.rmtree(parts)
            again = job
        assert cli.main([str(word) for word in again]) == 0, changes[last]
        assert table(parts) == table(whole), changes[last]
        assert bits(parts / "best") == bits(whole / "best")
        facts = [json.loads((folder / "search.json").read_text())["best"] for folder in (parts, whole)]
        assert {**facts[0], "command": ""} == {**facts[1], "command": ""}, changes[last]
        shutil.rmtree(parts)


def test_on_ray_it_is_the_same_table(tmp_path, cache_dir, whole, on_the_pool):
    where = ("--cache-dir", cache_dir, "--backend", "ray", "--workers", 2, "--run-dir", tmp_path / "ray")
    assert cli.main([str(word) for word in (*JOB, *where)]) == 0
    assert table(tmp_path / "ray") == table(whole)
    assert len(on_the_pool) == 1  # all its trials have one, which it has closed


@pytest.mark.parametrize("reference", ["alone", "pooled"])
def test_references_have_the_same_bits_on_ray(configured, tmp_path, pool, reference):
    config = configured(reference=reference, num_clients=4, partition="iid")
    inline, on_ray = (
        simulate(Federation(config), tmp_path / name, place).as_json()
        for name, place in (("inline", None), ("ray", pool))
    )
    assert inline["clients"] == on_ray["clients"]
    if reference == "pooled":
        assert bits(tmp_path / "inline") == bits(tmp_path / "ray")
