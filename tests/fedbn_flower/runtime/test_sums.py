"""A run whose groups are summed where they are trained is the run whose answers all come."""

from itertools import product

import pytest

from clients import FedAvgClient
from fedbn_flower.core.ground.wire import ARRAYS, SUMS
from fedbn_flower.runtime.grid import InlineGrid, node_context
from fedbn_flower.runtime.simulation import make_grid
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.adapter import answer_all
from tests.fedbn_flower.records.helpers import Watching
from tests.quick import some_quick

CLIENTS = 18


def run(config, summed):
    """The model, and what observers are told of each round."""
    federation, output = Federation(config), []
    grid = make_grid(federation, None)
    if not summed:
        grid = InlineGrid(config.num_clients, config.to_user_config(), grid.cohort)
        federation.strategy._takes_sums_ = False
    assert grid.sums == summed

    def told(result):
        metrics = {partition: dict(m) for partition, m in result.train.metrics.items()}
        carried = result.bytes_sent, result.bytes_received
        output.append((metrics, result.train.failures, dict(result.means), result.global_metrics, carried))

    arrays = federation.run(grid, [Watching(told)])
    return {name: array.numpy().tobytes() for name, array in arrays.items()}, output


VALUES = [
    {"strategy": "fedyogi", "client": "fedbn"},
    {"strategy": "fedams", "client": "lg-fedavg"},
    {"strategy": "fednova", "client": "silobn", "weighting": "uniform"},
    {"strategy": "scaffold", "objective": "scaffold", "client": "shared", "clip_update_norm": 0.1},
    {"strategy": "scaffold-momentum", "objective": "scaffold-momentum", "client_momentum": 0.9},
    {"strategy": "feddyn", "objective": "feddyn", "client": "shared", "max_num_examples": 80},
]


@pytest.mark.parametrize(("fast", "values"), some_quick([*product(["auto", "off"], VALUES)], quick={2}))
def test_the_bits_and_the_figures_of_answers_that_come_one_by_one(configured, values, fast):
    config = configured(
        partition="dirichlet:1", num_clients=CLIENTS, fast=fast, fraction_evaluate=0, batch_size=64, **values
    )
    apart = run(config, summed=False)
    assert run(config, summed=True) == apart
    refused = "max_num_examples" in values
    assert all(bool(failures) == refused for _, failures, *_ in apart[1])


class Unlucky(FedAvgClient):
    """Client 2 fails in training, client 10 gives what is not a number."""

    def fit(self, parameters, config):
        if self.task.seed[1] == 2:
            raise RuntimeError("no luck")
        update = super().fit(parameters, config)
        if self.task.seed[1] == 10:
            update.arrays[0].fill(float("nan"))
        return update


@pytest.mark.slow
def test_who_fails_is_not_in_the_sum(configured):
    keys = {"partition": "iid", "num_clients": CLIENTS, "client": f"{__name__}:Unlucky"}
    config = configured(**keys, strategy="fedadam", fraction_evaluate=0)
    apart = run(config, summed=False)
    assert run(config, summed=True) == apart
    assert [list(failures) for _, failures, *_ in apart[1]] == [[2, 10], [2, 10]]


def test_one_reply_of_a_group_carries_its_sum_and_none_a_model(configured):
    config = configured(partition="iid", num_clients=CLIENTS, rounds=1, fraction_evaluate=0)
    found = []

    class Looking(InlineGrid):
        def work(self, messages, timeout):
            contexts = [node_context(i, CLIENTS, self.run_config) for i in range(3)]
            if messages and messages[0].metadata.message_type == "train":
                found.extend(answer_all(messages[:3], contexts, summed=True))
            yield from super().work(messages, timeout)

    Federation(config).run(Looking(CLIENTS, config.to_user_config()), [])
    assert [SUMS in reply.content for reply in found] == [True, False, False]
    assert not any(ARRAYS in reply.content for reply in found)
