"""Runs of SuperNodes that have a ``state-dir``, and are started anew all the time."""

import logging

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.federation.federation import Federation
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from fedbn_flower.runtime import InlineGrid
from fedbn_flower.runtime.client_adapter import answer_all
from fedbn_flower.runtime.grid import LocalGrid, node_context, partition_of
from fedbn_flower.runtime.server_app import main as server_main


class PowerCut(BaseException):
    """Ends everything at once."""


class SuperNodes(LocalGrid):
    """Every message finds a SuperNode that has just been started: all it has is its ``state-dir``.

    The power goes before the client at ``position`` answers the train message of ``cut``.
    """

    def __init__(self, config, state_dir, cut=None, position=1):
        super().__init__(config.num_clients, config.to_user_config())
        self.state_dir, self.cut, self.position = state_dir, cut, position

    def work(self, messages, timeout):
        for i, message in enumerate(messages):
            facts = message.content.config_records.get("config", {})
            training = message.metadata.message_type == "train"
            if training and facts["server-round"] == self.cut and i == self.position:
                raise PowerCut
            context = node_context(partition_of(message), self.num_clients, self.run_config)
            if self.state_dir:
                context.node_config["state-dir"] = str(self.state_dir)
            yield from answer_all([message], [context])

    client_memory = None


def run_app(config, grid):
    server_main(grid, Context(1, 0, {}, RecordDict(), config.to_user_config()))


MEMORIES = [
    {"client": "fedbn"},
    {"client": "silobn", "strategy": "scaffold", "objective": "scaffold"},
    {"client": "fedavg", "strategy": "feddyn", "objective": "feddyn"},
    {"client": "fedbn", "selection": "power-of-choice:4", "compress": "topk:0.2"},
]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", MEMORIES)
@pytest.mark.parametrize("every", [1, 3])
def test_cut_off_and_resumed_a_run_of_supernodes_ends_in_the_same_bits(
    chosen, every, configured, tmp_path, caplog
):
    chosen |= {
        "num_clients": 4,
        "partition": "dirichlet:1",
        "fraction_train": 0.75,
        "checkpoint_every": every,
    }
    whole = configured(**chosen, rounds=6)
    arrays = Federation(whole).run(InlineGrid(4, whole.to_user_config()), [])
    first = configured(**chosen, rounds=6, run_dir=str(tmp_path / "run"))
    with pytest.raises(PowerCut):
        run_app(first, SuperNodes(first, tmp_path / "state", cut=5))
    again = configured(**chosen, rounds=6, resume=str(tmp_path / "run"))
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        run_app(again, SuperNodes(again, tmp_path / "state"))
    assert f"after round {4 if every == 1 else 3}" in caplog.text
    model = load_file(tmp_path / "run" / "model.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(model[name], array.numpy(), strict=True)
    assert (tmp_path / "run" / "metrics.csv").read_text().count("\n") == 7


@pytest.mark.slow
@pytest.mark.parametrize(("every", "rounds"), [(1, 4), (2, 5)])
def test_so_it_does_if_the_last_checkpoint_was_still_on_its_way(
    every, rounds, configured, tmp_path, monkeypatch
):
    """Every SuperNode but one had trained again by then."""
    chosen = {"client": "fedbn", "num_clients": 3, "partition": "iid", "checkpoint_every": every}
    whole = configured(**chosen, rounds=rounds)
    arrays = Federation(whole).run(InlineGrid(3, whole.to_user_config()), [])
    first = configured(**chosen, rounds=rounds, run_dir=str(tmp_path / "run"))
    save = CheckpointFolder.save

    def lost(self, checkpoint, memories, writer):
        if checkpoint.server_round < rounds - 1:
            save(self, checkpoint, memories, writer)

    monkeypatch.setattr(CheckpointFolder, "save", lost)
    with pytest.raises(PowerCut):
        run_app(first, SuperNodes(first, tmp_path / "state", cut=rounds, position=2))
    monkeypatch.undo()
    again = configured(**chosen, rounds=rounds, resume=str(tmp_path / "run"))
    run_app(again, SuperNodes(again, tmp_path / "state"))
    model = load_file(tmp_path / "run" / "model.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(model[name], array.numpy(), strict=True)


@pytest.mark.parametrize(("key", "value"), [("resume", "run"), ("continue_state", True)])
def test_a_supernode_that_forgets_does_not_pretend(key, value, configured, tmp_path, caplog):
    """A run that goes on from memories fails in clear words where there is no state-dir to hold them."""
    first = configured(rounds=1, run_dir=str(tmp_path / "run"))
    run_app(first, SuperNodes(first, None))
    again = configured(rounds=3, **{key: str(tmp_path / value) if key == "resume" else value})
    with pytest.raises(RunFailed):
        run_app(again, SuperNodes(again, None))
    assert "expected SuperNodes with a state-dir" in caplog.text


@pytest.mark.parametrize("continued", [True, False])
def test_a_new_run_may_go_on_with_what_clients_remember(continued, configured, tmp_path):
    """As if the clients of the first run had lived on in one process, or had all been new."""
    config = configured(rounds=2)
    first, inline = SuperNodes(config, tmp_path), InlineGrid(2, config.to_user_config())
    for grid in (first, inline):
        Federation(config).run(grid, [])
    second = configured(rounds=2, seed=5, continue_state=continued)
    grid = InlineGrid(2, second.model_copy(update={"continue_state": False}).to_user_config())
    if continued:
        grid.restore_memories(inline.client_memory)
    expected = Federation(second).run(grid, [])
    got = Federation(second).run(SuperNodes(second, tmp_path), [])
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name].numpy(), array.numpy())
