"""Runs of SuperNodes that have a ``state-dir``, and are started anew all the time."""

import json
import logging

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from safetensors.numpy import load_file

from fedbn_flower import client_app
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from fedbn_flower.runtime.grid import InlineGrid, node_context, partition_of
from fedbn_flower.server.federation import Federation
from tests.quick import diagonal_quick

from ..supernodes import PowerCut, SuperNodes, run_app

MEMORIES = [
    {"client": "fedbn"},
    {"client": "silobn", "strategy": "scaffold", "objective": "scaffold"},
    {"client": "shared", "strategy": "feddyn", "objective": "feddyn"},
    {"client": "fedbn", "selection": "power-of-choice:4", "compress": "topk:0.2"},
]


def cut_off(config, state_dir, before, position=1):
    """A run of SuperNodes that the power cuts off in this round."""
    with pytest.raises(PowerCut):
        run_app(config, SuperNodes(config, state_dir, before, position))


def expected_of(config):
    """The model of a simulation."""
    arrays = Federation(config).run(InlineGrid(config.num_clients, config.to_user_config()), [])
    return {name: array.numpy() for name, array in arrays.items()}


def check_model(folder, expected):
    model = load_file(folder / "model.safetensors")
    for name, array in expected.items():
        np.testing.assert_array_equal(model[name], array, strict=True)


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "every"), diagonal_quick(MEMORIES, [1, 3]))
def test_cut_off_and_resumed_a_run_of_supernodes_ends_in_the_same_bits(
    chosen, every, configured, tmp_path, caplog
):
    chosen = {
        **chosen, "num_clients": 4, "partition": "dirichlet:1", "fraction_train": 0.75, "rounds": 6,
        "checkpoint_every": every,
    }  # fmt: skip
    cut_off(configured(**chosen, run_dir=str(tmp_path / "run")), tmp_path / "state", before=6)
    again = configured(**chosen, resume=str(tmp_path / "run"))
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        run_app(again, SuperNodes(again, tmp_path / "state"))
    assert f"after round {4 if every == 1 else 3}" in caplog.text
    check_model(tmp_path / "run", expected_of(configured(**chosen)))
    assert (tmp_path / "run" / "metrics.csv").read_text().count("\n") == 7


@pytest.mark.slow
def test_so_it_does_if_the_last_checkpoint_was_still_on_its_way(configured, tmp_path, monkeypatch):
    """Every SuperNode but one had trained again by then."""
    rounds = 6
    chosen = {
        "client": "fedbn",
        "num_clients": 3,
        "partition": "iid",
        "checkpoint_every": 2,
        "rounds": rounds,
    }
    save = CheckpointFolder.save

    def lost(self, checkpoint, memories, writer):
        if checkpoint.server_round < rounds - 2:
            save(self, checkpoint, memories, writer)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointFolder, "save", lost)
        cut_off(configured(**chosen, run_dir=str(tmp_path / "run")), tmp_path / "state", rounds, position=2)
    again = configured(**chosen, resume=str(tmp_path / "run"))
    run_app(again, SuperNodes(again, tmp_path / "state"))
    check_model(tmp_path / "run", expected_of(configured(**chosen)))


@pytest.mark.parametrize(("key", "value"), [("resume", "run"), ("continue_state", True)])
def test_a_supernode_that_forgets_does_not_pretend(key, value, configured, tmp_path, caplog):
    """A run that goes on from memories fails in clear words where there is no state-dir to hold them."""
    first = configured(rounds=1, run_dir=str(tmp_path / "run"))
    run_app(first, SuperNodes(first, None))
    again = configured(rounds=3, **{key: str(tmp_path / value) if key == "resume" else value})
    with pytest.raises(RunFailed):
        run_app(again, SuperNodes(again, None))
    assert "expected SuperNodes with a state-dir" in caplog.text


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_that_was_cut_off_finds_its_memories_after_two_others(configured, tmp_path, caplog):
    """One of these is complete, one still trains; the first then ends in a simulation's bits."""
    chosen, state = {"client": "fedbn", "rounds": 3}, tmp_path / "state"
    first = configured(**chosen, run_dir=str(tmp_path / "first"))
    cut_off(first, state, before=3)
    for name, cut in (("second", None), ("third", 3)):
        other = configured(**chosen, seed=7, run_dir=str(tmp_path / name))
        cut_off(other, state, cut) if cut else run_app(other, SuperNodes(other, state))
    again = configured(**chosen, resume=str(tmp_path / "first"))
    caplog.clear()
    run_app(again, SuperNodes(again, state))
    check_model(tmp_path / "first", expected_of(first))
    assert not warnings_in(caplog)
    assert "memories-lost" not in json.loads((tmp_path / "first/summary.json").read_text())
    kept = sorted((state / "default").glob("client-0-*"))
    runs = [path.name[9:39] for path in kept]
    # Of the complete ones the last memory and the mark; of the third, which can be resumed, every round's.
    assert [runs.count(run) for run in dict.fromkeys(runs)] == [2, 2, 3]
    assert [path.suffix for path in kept].count(".complete") == 2


@pytest.mark.slow
def test_a_memory_that_is_missing_or_older_is_told_by_site(configured, tmp_path, caplog):
    """Of three, partition 1 loses its disk between rounds 2 and 3; in round 4 it has that of round 3."""
    chosen, state = {"client": "fedbn", "rounds": 4, "num_clients": 3, "partition": "iid"}, tmp_path / "state"
    first = configured(**chosen, run_dir=str(tmp_path / "run"))
    cut_off(first, state, before=4)
    (newest,) = state.rglob("client-0-*-000002.safetensors")
    newest.write_bytes(b"")
    for path in state.rglob("client-1-*"):
        path.unlink()
    again = configured(**chosen, resume=str(tmp_path / "run"))
    caplog.clear()
    run_app(again, SuperNodes(again, state))
    damaged, *told = warnings_in(caplog)
    assert str(newest) in damaged
    kept = "round 3, train: partition {} kept a memory of round 2, and now has {}"
    none = "none: what stays there begins anew"
    assert sorted(told) == [kept.format(0, "that of round 1"), kept.format(1, none)]
    assert json.loads((tmp_path / "run/summary.json").read_text())["memories-lost"] == {"0": [3], "1": [3]}


@pytest.mark.slow
def test_a_run_of_which_no_site_has_its_memory_does_not_go_on(configured, tmp_path, caplog):
    """As after two other runs, when the sites keep those of the last two. Its folder stays as it was."""
    state, names = tmp_path / "state", ("first", "second", "third")
    for name in names:
        config = configured(client="fedbn", rounds=1, run_dir=str(tmp_path / name))
        run_app(config, SuperNodes(config, state))
    lost, kept, _ = (configured(client="fedbn", rounds=2, resume=str(tmp_path / name)) for name in names)
    run_app(kept, SuperNodes(kept, state))
    check_model(tmp_path / "second", expected_of(configured(client="fedbn", rounds=2)))
    before = (tmp_path / "first/metrics.csv").read_text()
    with pytest.raises(RunFailed, match="resume: none of 2 sites has its memory of this run any more"):
        run_app(lost, SuperNodes(lost, state))
    assert (tmp_path / "first/metrics.csv").read_text() == before


def test_a_supernode_without_state_dir_that_is_started_anew_is_told(configured, tmp_path, caplog):
    """All of its memory is in the process; here each message finds a new one."""
    config = configured(client="fedbn", rounds=2, run_dir=str(tmp_path / "run"))
    run_app(config, SuperNodes(config, None))
    assert [line.split(",")[0] for line in warnings_in(caplog)] == ["round 2", "round 2"]
    assert "complete" not in caplog.text  # nobody keeps files


@pytest.mark.slow
def test_a_site_that_does_not_hear_of_the_end_keeps_all(configured, tmp_path, caplog):
    class Deaf(SuperNodes):
        def work(self, messages, timeout):
            heard = [
                message
                for message in messages
                if message.metadata.message_type != "query.complete" or partition_of(message) == 0
            ]
            return super().work(heard, timeout)

    config = configured(client="fedbn", rounds=3, run_dir=str(tmp_path / "run"), round_timeout=2)
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        run_app(config, Deaf(config, tmp_path / "state"))
    line = "1 of 2 sites have not heard that the run is complete, and keep all of its memories: 1"
    assert line in caplog.messages
    names = {path.name[:8] + path.name[39:] for path in (tmp_path / "state/default").iterdir()}
    assert names == {
        "client-0.complete", "client-0-000003.safetensors", "client-1-000001.safetensors",
        "client-1-000002.safetensors", "client-1-000003.safetensors",
    }  # fmt: skip


def test_the_app_that_supernodes_load_answers_it_too(configured, tmp_path):
    config = configured(client="fedbn", rounds=3)
    Federation(config).run(SuperNodes(config, tmp_path), [])
    run = next((tmp_path / "default").iterdir()).name[9:39]
    node = node_context(0, 2, config.to_user_config())
    node.node_config["state-dir"] = str(tmp_path)
    content = RecordDict({"config": ConfigRecord({"run": run, "server-round": 3})})
    answer = client_app.app(Message(content, node.node_id, "query.complete"), node)
    assert answer.has_content()
    names = [path.name[40:] for path in sorted((tmp_path / "default").glob("client-0*"))]
    assert names == ["000003.safetensors", "complete"]


def test_sites_of_an_earlier_version_are_asked_nothing_new(configured, tmp_path, caplog):
    """They do not say what they keep, so nothing is missing there, and keep it when the run is complete."""

    class Earlier(SuperNodes):
        def work(self, messages, timeout):
            asked.update(message.metadata.message_type for message in messages)
            for answer in super().work(messages, timeout):
                for name in ("memory", "evaluation.memory"):
                    answer.content.pop(name, None)
                yield answer

    asked = set()
    config = configured(client="fedbn", rounds=2, run_dir=str(tmp_path / "run"))
    run_app(config, Earlier(config, tmp_path / "state"))
    assert asked == {"query.partition_id", "train", "evaluate"}
    assert not warnings_in(caplog)
    assert not list((tmp_path / "state").rglob("*.complete"))


LIES = [{"found": 2**62, "kept": 1}, {"found": 1.0, "kept": 1}, {"found": -1, "kept": 1}, {"found": 1}]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("record", LIES)
def test_a_site_that_lies_about_its_memory_is_asked_nothing(record, configured, tmp_path, caplog):
    class Liar(SuperNodes):
        def work(self, messages, timeout):
            for answer in super().work(messages, timeout):
                for name in {"memory", "evaluation.memory"} & answer.content.keys():
                    answer.content[name] = ConfigRecord(record)
                yield answer

    config = configured(client="fedbn", rounds=2, run_dir=str(tmp_path / "run"))
    run_app(config, Liar(config, tmp_path / "state"))
    assert not warnings_in(caplog)


def test_a_site_cannot_be_told_of_a_path(configured, tmp_path):
    config = configured()
    content = RecordDict({"config": ConfigRecord({"run": "../../etc", "server-round": 1})})
    grid = SuperNodes(config, tmp_path)
    (answer,) = grid.send_and_receive([Message(content, next(iter(grid.get_node_ids())), "query.complete")])
    assert "the server sent '../../etc' as the run's name" in answer.error.reason
