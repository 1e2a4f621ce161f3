"""What is logged and sent is what Flower logs and sends."""

import logging

import pytest

from ..helpers import CannedGrid, record
from .scenarios import APIS, MODEL, client, failed, run


def logged(api, caplog, nodes, work=client, rounds=3):
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr"):
        run(api.FedAvg(fraction_evaluate=0.5), nodes=nodes, work=work, rounds=rounds)
    return [one.getMessage() for one in caplog.records]


@pytest.fixture
def flowers_log(caplog):
    """Flower's logger does not hand its lines on."""
    logger = logging.getLogger("flwr")
    before, logger.propagate = logger.propagate, True
    yield caplog
    logger.propagate = before


def test_the_lines_of_a_round(flowers_log):
    def breaking(message, node):
        return failed(message) if node == 1 else client(message, node)

    lines = [
        [
            line
            for line in logged(api, flowers_log, 4, breaking)
            if line.startswith(("configure_", "aggregate_"))
        ]
        for api in APIS
    ]
    assert lines[0][:3] == [
        "configure_train: Sampled 4 nodes (out of 4)",
        "aggregate_train: Received 3 results and 1 failures",
        "configure_evaluate: Sampled 2 nodes (out of 4)",
    ]
    evaluated = "aggregate_evaluate"  # which two of four nodes is another draw
    assert [line for line in lines[0] if evaluated not in line] == [
        line for line in lines[1] if evaluated not in line
    ]


def test_as_many_lines_as_flowers_for_fifty_nodes(flowers_log):
    theirs, ours = (logged(api, flowers_log, 50, rounds=1) for api in APIS)
    assert len(ours) <= len(theirs) + 10  # the summary lists a few more settings


def test_no_message_that_flower_does_not_send():
    """Two phases a round: nobody is asked for a partition."""
    for api in APIS:
        grid = CannedGrid(4, client)
        api.FedAvg().start(grid, record(MODEL), 3)
        assert len(grid.timeouts) == 6
