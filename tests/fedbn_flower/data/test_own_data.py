"""Sites that train on data of their own, which the server does not have."""

import numpy as np
import pandas as pd
import pytest
from flwr.app import Message, RecordDict

from fedbn_flower.core.errors import UserError
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.grid import InlineGrid, LocalGrid, identify_process, node_context, partition_of
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.adapter import answer_all
from fedbn_flower.site.inputs import local_task


class Sites(LocalGrid):
    """Nodes with these node configs."""

    def __init__(self, config, node_configs):
        super().__init__(len(node_configs), config.to_user_config())
        self.contexts = [node_context(i, len(node_configs), self.run_config) for i in range(self.num_clients)]
        for context, node_config in zip(self.contexts, node_configs, strict=True):
            context.node_config = node_config

    def work(self, messages, timeout):
        for message in messages:
            yield from answer_all([message], [self.contexts[partition_of(message)]])

    client_memory = None


def assert_sites_give_the_simulation(simulated, config, folder):
    """Divide a folder's tables into sites ``a`` and ``b``, with their rows in the order of a simulation.

    The run over the sites has the bits of the simulation. Return its model, its messages and its nodes.
    """
    for split in ("train", "test"):
        table, shares = pd.read_csv(folder / f"{split}.csv"), inputs_of(simulated).partitions
        for i, site in enumerate("ab"):
            (folder.parent / site).mkdir(exist_ok=True)
            table.iloc[getattr(shares, split)[i]].to_csv(folder.parent / site / f"{split}.csv", index=False)
    cache = str(folder.parent / "cache")
    nodes = [
        {"data-path": str(folder.parent / site), "partition-id": i, "cache-dir": cache}
        for i, site in enumerate("ab")
    ]
    messages, grid = [], Sites(config, nodes)
    work = grid.work
    grid.work = lambda asked, timeout: messages.extend(asked) or work(asked, timeout)
    expected = Federation(simulated).run(InlineGrid(2, simulated.to_user_config()), [])
    got = Federation(config).run(grid, [])
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name].numpy(), array.numpy())
    return expected, messages, nodes


@pytest.fixture
def folders(configured, write_site, tmp_path):
    """The two silos of the digits as two sites' folders."""
    for partition in (0, 1):
        write_site(configured(), partition, tmp_path / f"site-{partition}")
    return [tmp_path / "site-0", tmp_path / "site-1"]


def test_what_is_decoded_of_a_sites_data_goes_where_the_site_says(configured, folders, tmp_path):
    """A run cannot have a site write elsewhere."""
    config = configured(dataset="shape:1x8x8:10", cache_dir=str(tmp_path / "theirs"))
    local_task(config, 0, {"data-path": str(folders[0]), "cache-dir": str(tmp_path / "ours")})
    assert (tmp_path / "ours").exists()
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("spec", ["shape:3x8x8:10", "shape:1x8x9:10", "shape:1x8x8:4"])
def test_images_that_the_run_does_not_expect_are_refused(configured, folders, tmp_path, spec):
    node_config = {"data-path": str(folders[0]), "cache-dir": str(tmp_path / "cache")}
    with pytest.raises(UserError, match="data-path: .*; expected examples of .*, not of 1x8x8 in 10 classes"):
        local_task(configured(dataset=spec), 0, node_config)


@pytest.mark.parametrize(
    "spec", ["shape:", "shape:x8:10", "shape:1x8x8", "shape:0x8x8:10", "shape:1x8x8:x", "shape:8:2:odd"]
)
def test_a_shape_is_sizes_and_outputs(configured, spec):
    with pytest.raises(UserError, match="dataset: .* is not allowed; expected shape:SIZES:OUTPUTS"):
        configured(dataset=spec)


def test_a_site_without_data_says_so(configured):
    with pytest.raises(UserError, match="data-path: missing from the node config"):
        local_task(configured(dataset="shape:1x8x8:10"), 0, {"partition-id": 0})


@pytest.mark.parametrize(
    ("node_config", "answer"),
    [
        ({"partition-id": 3}, 3),
        ({"data-path": "/x", "partition-id": 0}, 0),
        ({"data-path": "/x"}, None),
        ({}, "partition-id: None is not allowed"),
        ({"partition-id": "0"}, "partition-id: '0' is not allowed"),
        ({"partition-id": -1}, "partition-id: -1 is not allowed"),
    ],
)
def test_which_partition_a_node_reports(configured, node_config, answer):
    identify_process()
    context = node_context(0, 2, configured().to_user_config())
    context.node_config = node_config
    (reply,) = answer_all([Message(RecordDict(), 2, "query.partition_id")], [context])
    if isinstance(answer, str):
        assert answer in reply.error.reason
    else:
        assert reply.content.config_records["partition"].get("partition-id") == answer
