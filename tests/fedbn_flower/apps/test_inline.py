"""Apps in this process: what their two sides see, as Flower has it."""

import asyncio
import json
import logging
import os
import random
import sys
import threading

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.numpy import load_file

from fedbn_flower import RunFailed, UserError, run_app

from .written import CLIENT, LEGACY_CLIENT, LEGACY_SERVER, ask, echo, write_app


def test_an_app_in_a_folder_with_a_strategy_of_flowers(tmp_path):
    """Three clients add 0.5, 1 and 1.5 in each round: the mean is 1 a round."""
    folder = write_app(tmp_path / "app")
    result = run_app(folder, num_supernodes=3, run_dir=tmp_path / "run", backend="inline", seed=7)
    assert result.history.to_dict("list") == {
        "round": [1, 2],
        "train-loss": [2.0, 4.0],
        "evaluate-accuracy": [1.0, 2.0],
    }
    np.testing.assert_array_equal(result.arrays["0"], [2.0, 2.0])
    assert (result.rounds, result.failures, result.place) == (2, 0, {"backend": "inline"})
    np.testing.assert_array_equal(load_file(tmp_path / "run" / "model.safetensors")["0"], [2.0, 2.0])
    assert (tmp_path / "run" / "metrics.csv").read_text() == (
        "round,train-loss,evaluate-accuracy\n1,2.0,1.0\n2,4.0,2.0\n"
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["folder-of"] == "app"
    assert config["seed"] == 7
    assert config["run-config"]["nested.depth"] == 3
    assert "[ROUND 2/2]" in (tmp_path / "run" / "log.txt").read_text()
    assert not [name for name in sys.modules if name.startswith("small_app")]
    assert str(folder) not in sys.path


def test_an_override_has_its_type_and_an_edited_app_is_read_anew(tmp_path):
    folder = write_app(tmp_path / "app")
    result = run_app(folder, run_config="num-server-rounds=1 lr=2 name='a b'", backend="inline")
    assert result.arrays["0"].tolist() == [3.0, 3.0]
    config = json.loads((result.folder / "config.json").read_text())
    assert config["overrides"] == {"num-server-rounds": 1, "lr": 2, "name": "a b"}
    client = folder / "small_app" / "client_app.py"
    client.write_text(client.read_text().replace("weights + ", "weights + -1 * "))
    again = run_app(folder, run_config={"num-server-rounds": 1, "lr": 2}, backend="inline")
    assert again.arrays["0"].tolist() == [-3.0, -3.0]


def test_a_legacy_app_runs_in_this_thread_in_the_order_of_its_clients(tmp_path):
    """Clients of weights 1, 2, 3 add 1, 2, 3: the mean of a round is 14/6."""
    threads = "import threading\n" + LEGACY_CLIENT.replace(
        "    def fit(self, parameters, config):\n",
        "    def fit(self, parameters, config):\n        print('fits in', threading.get_ident())\n",
    )
    by_site = LEGACY_SERVER.replace('{"round": server_round}', '{"by site": {"a": server_round}}')
    folder = write_app(tmp_path / "app", by_site, threads)
    result = run_app(folder, num_supernodes=3, run_dir=tmp_path / "run", backend="inline")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert set(line for line in log.splitlines() if line.startswith("fits in")) == {
        f"fits in {threading.get_ident()}"
    }
    assert result.history["round"].tolist() == [0, 1, 2]
    assert result.history["train-seen"].tolist()[1:] == [1.0, 2.0]
    assert [json.loads(cell)["a"] for cell in result.history["server-by site"]] == [0, 1, 2]
    np.testing.assert_allclose(result.history["server-loss"], [0, 14 / 6, 28 / 6])
    np.testing.assert_allclose(result.history["evaluate-loss"][1:], [14 / 6, 28 / 6])
    np.testing.assert_allclose(result.arrays["0"], [28 / 6, 28 / 6])


def test_a_legacy_client_that_raises_is_a_failure_of_the_round(tmp_path):
    odd = LEGACY_CLIENT.replace(
        "        counts = ", "        assert self.place, 'no data'\n        counts = "
    )
    result = run_app(write_app(tmp_path / "app", LEGACY_SERVER, odd), num_supernodes=3, backend="inline")
    np.testing.assert_allclose(result.history["server-loss"], [0, 13 / 5, 26 / 5])
    assert result.failures == 2
    assert "no data" in (result.folder / "log.txt").read_text()


def test_a_client_keeps_its_state_and_only_if_it_answers(run):
    client = ClientApp()
    seen = {}

    @client.query()
    def count(message, context):
        numbers = context.state.config_records.setdefault("n", ConfigRecord({"asked": 0}))
        numbers["asked"] += 1
        if message.content["config"].get("fail") == context.node_config["partition-id"]:
            raise ValueError("lost")
        return Message(RecordDict({"n": numbers}), reply_to=message)

    def main(grid, context):
        for fail in (-1, 1, -1):
            for reply in ask(grid, "query", fail=fail):
                if reply.has_content():
                    reply.content["n"]["asked"] += 100  # what came is the server's own
                    seen.setdefault(reply.metadata.src_node_id, []).append(reply.content["n"]["asked"])

    run(main, client)
    assert seen == {2: [101, 102, 103], 3: [101, 102], 4: [101, 102, 103]}


def test_a_client_has_copies_of_what_is_sent_and_of_its_configuration(run):
    def train(message, context):
        config = message.content["config"]
        assert config["values"] == [1]
        config["values"].append(2)
        config["more"] = 1
        message.content["other"] = MetricRecord()
        return Message(RecordDict(), reply_to=message)

    contents = []

    def main(grid, context):
        content = RecordDict({"config": ConfigRecord({"values": [1]})})
        for _ in range(2):
            replies = grid.send_and_receive([Message(content, n, "train") for n in grid.get_node_ids()])
            assert all(reply.has_content() for reply in replies)
        contents.append(content)

    run(main, train)
    assert contents == [RecordDict({"config": ConfigRecord({"values": [1]})})]


def test_actions_mods_and_lifespan_are_flowers(run):
    calls = []

    def mod(message, context, call):
        calls.append("mod")
        return call(message, context)

    client = ClientApp(mods=[mod])

    @client.lifespan()
    def lifespan(context):
        calls.append("enter")
        yield
        calls.append("exit")

    @client.train("twice")
    def twice(message, context):
        calls.append("twice")
        return Message(message.content, reply_to=message)

    found = []

    def main(grid, context):
        found.extend(reply.has_error() for reply in [*ask(grid, "train.twice"), *ask(grid, "train")])

    run(main, client, nodes=1)
    assert calls == ["enter", "mod", "twice", "exit", "enter", "exit"]
    assert found == [False, True]


ERRORS = {
    "is cancelled": (2, "CancelledError"),
    "raises": (2, "ValueError: bad batch"),
    "exits": (8, "exited with 3"),
    "returns": (0, "returned NoneType"),
    "answers": (0, "reply_to"),
    "changes": (0, "context.run_config"),
    "keeps": (0, "the ClientApp set context.state to {'n': 1}; expected a RecordDict"),
}


@pytest.mark.parametrize("how", ERRORS)
def test_what_goes_wrong_in_a_client_is_an_error_with_flowers_code(run, how):
    def train(message, context):
        if context.node_config["partition-id"] == 0:
            if how == "raises":
                raise ValueError("bad batch")
            if how == "exits":
                sys.exit(3)
            if how == "is cancelled":
                raise asyncio.CancelledError
            if how == "returns":
                return None
            if how == "answers":
                return Message(RecordDict(), 1, "train")
            if how == "keeps":
                context.state = {"n": 1}
            else:
                context.run_config["lr"] = 1
        return Message(message.content, reply_to=message)

    replies = []
    result = run(lambda grid, context: replies.extend(ask(grid)), train, run_config={"lr": 0})
    code, words = ERRORS[how]
    assert "node 2 failed to answer a message of train: " in (result.folder / "log.txt").read_text()
    assert [reply.has_error() for reply in replies] == [True, False, False]
    assert replies[0].error.code == code
    assert words in replies[0].error.reason
    if how == "raises":
        assert "in train" in replies[0].error.reason  # the traceback, whole


def test_what_is_drawn_follows_from_the_seed_and_server_and_clients_do_not_disturb_each_other(run, tmp_path):
    import random

    drawn = {}

    def one_run(name, seed, reseeds):
        def train(message, context):
            if reseeds:
                random.seed(0)
                np.random.seed(0)
            drawn[name].append(random.random())
            return Message(RecordDict(), reply_to=message)

        def main(grid, context):
            for _ in range(2):
                ask(grid)
                drawn[name].append(("server", random.random(), np.random.random()))

        drawn[name] = []
        run(main, train, nodes=2, seed=seed, run_dir=tmp_path / name)

    one_run("first", 1, False)
    one_run("again", 1, False)
    one_run("other", 2, False)
    one_run("reseeds", 1, True)
    assert drawn["first"] == drawn["again"]
    assert len(set(drawn["first"])) == 6
    assert not set(drawn["first"]) & set(drawn["other"])
    of_server = [[one for one in drawn[name] if isinstance(one, tuple)] for name in ("first", "reseeds")]
    assert of_server[0] == of_server[1]


def test_the_server_and_its_clients_are_on_one_stack(run):
    """A breakpoint in a client has the strategy and the ServerApp above it."""
    names = []

    def train(message, context):
        frame = sys._getframe()
        while frame:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"a": message.content["arrays"], "m": metrics}), reply_to=message)

    def main(grid, context):
        FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord([np.zeros(1)]), num_rounds=1)

    run(main, train, nodes=2)
    assert {"train", "start", "main", "test_the_server_and_its_clients_are_on_one_stack"} <= set(names)


def test_an_app_that_waits_for_more_nodes_than_there_are_ends(run, tmp_path):
    def main(grid, context):
        FedAvg(min_train_nodes=4).start(grid, ArrayRecord([np.zeros(1)]), num_rounds=1)

    line = "num-supernodes: 3 is not allowed; expected at least 4, for which the app's strategy waits"
    with pytest.raises(UserError, match=line):
        run(main)
    server = LEGACY_SERVER.replace("    strategy = FedAvg(", "    strategy = FedAvg(min_available_clients=4,")
    folder = write_app(tmp_path / "app", server, LEGACY_CLIENT)
    with pytest.raises(UserError, match=line):
        run_app(folder, num_supernodes=3, backend="inline")


@pytest.mark.parametrize(("key", "value"), [("run_config", {1: 2}), ("run_dir", 5)])
def test_a_value_of_another_type_is_refused(tmp_path, key, value):
    with pytest.raises(UserError, match=key.replace("_", ".")):
        run_app(write_app(tmp_path / "app"), **{key: value})


def test_app_objects_are_given_by_name_or_in_the_place_of_a_folder(tmp_path):
    server, client = ServerApp(), echo()
    server.main()(lambda grid, context: None)
    assert run_app(server_app=server, client_app=client, run_dir=tmp_path / "run", seed=0).rounds == 0
    mistakes = {
        "server_app: 'x' is not allowed; expected a ServerApp": {"server_app": "x", "client_app": client},
        "app: 'here' is not allowed; expected none": {"app": "here", "server_app": server},
        "client_app: None is not allowed; expected a ClientApp": {"server_app": server},
        "app: None is not allowed; expected the folder of a Flower app, or a ServerApp": {},
    }
    for message, given in mistakes.items():
        with pytest.raises(UserError, match=message):
            run_app(**given)


def test_a_run_in_which_every_client_fails_has_failed(run):
    with pytest.raises(RunFailed, match="every client failed: all 3 replies"):
        run(lambda grid, context: ask(grid), ClientApp())


def test_what_the_server_raises_is_raised_and_its_results_are_kept(run, tmp_path):
    def main(grid, context):
        print("half way")
        logging.getLogger("flwr").info("a line of the log")
        raise LookupError("nobody home")

    with pytest.raises(LookupError, match="nobody home") as caught:
        run(main)
    assert "results so far" in caught.value.__notes__[0]
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "half way" in log
    assert "a line of the log" in log
    assert "nobody home" in log


def test_what_the_app_reads_of_its_run(run):
    found = []

    def main(grid, context):
        found.append((grid.run.run_id == context.run_id, grid.run.fab_id, context.run_config))
        with pytest.raises(RuntimeError):
            grid.set_run(grid.run)
        message = grid.create_message(RecordDict(), "query", 2, "1")
        found.append(message.metadata.group_id)
        nodes = grid.get_nodes()
        found.append([(nodes[place].node_id, nodes[place].status) for place in range(len(nodes))])

    run(main, run_config={"a": {"b": 1}, "c": "x"})
    online = [(2, "online"), (3, "online"), (4, "online")]
    assert found == [(True, "app", {"a.b": 1, "c": "x"}), "1", online]


def test_the_nodes_are_a_set_as_in_a_simulation_and_a_list_as_with_a_superlink(run):
    def main(grid, context):
        nodes = grid.get_node_ids()
        assert (list(nodes), nodes[0], nodes[-1], nodes[1:]) == ([2, 3, 4], 2, 4, [3, 4])
        assert (nodes - {3}, nodes & {3, 9}, nodes.difference({2})) == ({2, 4}, {3}, {3, 4})
        assert set(random.sample(nodes, 3)) == nodes

    run(main)


def test_changes_of_the_node_config_end_with_the_message(run):
    seen = []

    def train(message, context):
        seen.append("more" in context.node_config)
        context.node_config["more"] = 1
        return Message(RecordDict(), reply_to=message)

    run(lambda grid, context: [ask(grid), ask(grid)], train, nodes=1)
    assert seen == [False, False]


def test_an_app_reads_files_beside_it_and_from_the_current_folder(tmp_path):
    reading = "from pathlib import Path\n" + CLIENT.replace(
        "    (weights,) =",
        "    assert (Path(__file__).parents[1] / 'data.bin').exists() and Path('mine.txt').exists()\n"
        "    (weights,) =",
    )
    folder = write_app(tmp_path / "app", client=reading)
    (folder / "data.bin").touch()
    (tmp_path / "mine.txt").touch()
    assert run_app(folder, backend="inline").failures == 0


def test_an_app_may_change_the_current_folder(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()

    def main(grid, context):
        os.chdir(tmp_path / "elsewhere")
        arrays = ArrayRecord([np.zeros(1)])
        FedAvg().start(grid, arrays, num_rounds=0, evaluate_fn=lambda *_: MetricRecord({"loss": 1.0}))

    run(main, run_dir="run")
    assert (tmp_path / "run" / "metrics.csv").read_text().split() == ["round,server-loss", "0,1.0"]


def test_results_of_several_strategies_are_numbered_and_written_meanwhile(run, tmp_path):
    written = []

    def main(grid, context):
        for value in (1.0, 2.0):
            FedAvg(fraction_train=0.0).start(
                grid, ArrayRecord([np.full(1, value)]), num_rounds=2,
                evaluate_fn=lambda number, arrays: MetricRecord({"seen": number, "list": [1, 2]}),
            )  # fmt: skip
        history = tmp_path / "run" / "metrics.csv"
        written.append([line[:3] for line in history.read_text().splitlines()[1:]])

    result = run(main, evaluating())
    table = result.history
    assert table.columns.tolist() == ["start", "round", "evaluate-ok", "server-seen", "server-list"]
    assert table["start"].tolist() == [1, 1, 1, 2, 2, 2]
    assert table["server-seen"].tolist() == [0, 1, 2, 0, 1, 2]
    assert set(table["server-list"]) == {"[1, 2]"}
    assert result.rounds == 4
    assert written == [["1,0", "1,1", "1,2", "2,0", "2,1"]]  # the last round is not over


def test_what_an_app_caches_in_its_modules_stays_also_if_it_changes_the_path(tmp_path):
    """Fits are counted in a module; the count would begin anew if the module were imported again."""
    counting = "import sys\nsys.path.insert(0, '/nowhere')\nCALLS = []\n" + CLIENT.replace(
        "    (weights,) =", "    CALLS.append(1)\n    print('calls', len(CALLS))\n    (weights,) =", 1
    )
    result = run_app(write_app(tmp_path / "app", client=counting), backend="inline")
    log = (result.folder / "log.txt").read_text().splitlines()
    assert [line for line in log if line.startswith("calls")] == [f"calls {i}" for i in range(1, 5)]


def test_a_handler_that_the_app_made_still_logs_after_the_run(run, capsys):
    logger = logging.getLogger("an app's")

    def main(grid, context):
        logger.addHandler(logging.StreamHandler())
        logger.warning("within")

    result = run(main)
    logger.warning("afterwards")
    assert capsys.readouterr().err.endswith("within\nafterwards\n")
    assert "within" in (result.folder / "log.txt").read_text()
    logger.handlers.clear()


def evaluating():
    client = ClientApp()
    metrics = MetricRecord({"num-examples": 1, "ok": 1.0})
    client.evaluate()(lambda message, context: Message(RecordDict({"m": metrics}), reply_to=message))
    return client
