"""Apps on Ray's workers: what they give in one process, whatever happens to the workers."""

import logging
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

pytest.importorskip("fedbn_flower.apps")
pytest.importorskip("fedbn_flower.runtime.ray")

from fedbn_flower import UserError, run_app
from fedbn_flower.apps import run as running
from fedbn_flower.runtime.ray import auto_grid
from tests.fedbn_flower.apps.written import CLIENT, IMPORTS, LEGACY_CLIENT, LEGACY_SERVER, write_app

from .processes import LONG, processes_with, wait_for

pytestmark = pytest.mark.slow

DRAWS = CLIENT.replace(
    "    (weights,) =",
    """    import os, random
    import numpy as np
    from small_app.part import add
    print("client", context.node_config["partition-id"], "is here")
    seen = context.state.array_records.setdefault("seen", ArrayRecord([np.zeros(3)]))
    (kept,) = seen.to_numpy_ndarrays()
    kept = add(kept, [random.random(), np.random.random(), 1.0])
    context.state["seen"] = ArrayRecord([kept])
    (weights,) =""",
    1,
).replace("weights + message", "weights + kept[:2] * kept[2] + message")
"""A client that draws random numbers, keeps an array, prints, and imports from its package."""


@pytest.fixture
def both(tmp_path, on_the_pool, monkeypatch):
    """Runs an app inline and on two workers; the two results."""
    monkeypatch.chdir(tmp_path)

    def both(app, *objects, **settings):
        return [
            run_app(app, *objects, seed=3, backend=backend, run_dir=backend, **settings)
            for backend in ("inline", "ray")
        ]

    return both


def assert_equal(one, other):
    assert one.history.equals(other.history)
    assert {name: a.tobytes() for name, a in one.arrays.items()} == {
        name: a.tobytes() for name, a in other.arrays.items()
    }


def test_random_numbers_state_and_prints(both, tmp_path):
    folder = write_app(tmp_path / "app", client=DRAWS)
    (folder / "small_app" / "part.py").write_text("def add(a, b):\n    return a + b\n")
    inline, ray = both(folder, num_supernodes=9, run_config={"num-server-rounds": 3})
    assert_equal(inline, ray)
    assert ray.place == {"backend": "ray", "workers": 2}
    logs = [(result.folder / "log.txt").read_text() for result in (inline, ray)]
    printed = [sorted(line for line in log.splitlines() if line.startswith("client")) for log in logs]
    assert printed[0] == printed[1]
    assert len(printed[1]) == 27


def test_a_legacy_app(both, tmp_path):
    both_results = both(write_app(tmp_path / "app", LEGACY_SERVER, LEGACY_CLIENT), num_supernodes=5)
    assert_equal(*both_results)
    np.testing.assert_allclose(both_results[1].arrays["0"], 2 * (1 + 4 + 9 + 16 + 25) / 15)


def test_app_objects_of_a_session(both):
    """A process that a client forks ends at a SIGTERM (-15): `multiprocessing.Pool` waits for that."""
    server, client = ServerApp(), ClientApp()
    offset = 5
    found = []

    @client.query("where")
    def where(message, context):
        child = os.fork()
        if not child:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                os._exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        metrics = MetricRecord({"pid": os.getpid(), "sum": offset, "code": code})
        return Message(RecordDict({"m": metrics}), reply_to=message)

    @server.main()
    def main(grid, context):
        content = RecordDict({"config": ConfigRecord()})
        replies = grid.send_and_receive([Message(content, n, "query.where") for n in grid.get_node_ids()])
        metrics = [reply.content["m"] for reply in replies]
        found.append([(one["sum"], one["code"], one["pid"] == os.getpid()) for one in metrics])

    both(server, client, num_supernodes=3)
    assert found == [[(5, -15, True)] * 3, [(5, -15, False)] * 3]


def test_a_node_has_its_messages_one_after_the_other_and_handlers_of_logs_stay(both):
    """Each message adds to what the client kept; a handler that the first one makes logs them all."""
    server, client = ServerApp(), ClientApp()
    counts, logger = [], "of an app"

    @client.train()
    def train(message, context):
        numbers = context.state.config_records.setdefault("n", ConfigRecord({"n": 0}))
        numbers["n"] += 1
        if numbers["n"] == 1 and not logging.getLogger(logger).handlers:
            logging.getLogger(logger).addHandler(logging.StreamHandler())
        logging.getLogger(logger).warning("logged %d", numbers["n"])
        return Message(RecordDict({"n": numbers}), reply_to=message)

    @server.main()
    def main(grid, context):
        for _ in range(2):
            messages = [Message(RecordDict(), node, "train") for node in (2, 2, 2, 3, 2)]
            counts.append([reply.content["n"]["n"] for reply in grid.send_and_receive(messages)])

    results = both(server, client)
    logging.getLogger(logger).handlers.clear()
    assert counts == [[1, 2, 3, 1, 4], [5, 6, 7, 2, 8]] * 2
    for result in results:
        assert (result.folder / "log.txt").read_text().count("logged") == 10


def test_what_cannot_be_sent_is_one_line(both):
    server, client, lock = ServerApp(), ClientApp(), threading.Lock()
    client.train()(lambda message, context: lock)
    server.main()(lambda grid, context: None)
    with pytest.raises(UserError, match="app: cannot be sent to Ray's workers .*lock"):
        both(server, client)


def test_errors_and_deaths_have_flowers_codes(both, tmp_path):
    """A client that kills its process fails; the others of its worker do not, nor do the next messages."""
    server = (
        IMPORTS
        + """
app = ServerApp()


@app.main()
def main(grid, context):
    for how in ("raise", "fine", context.run_config["name"], "fine"):
        content = RecordDict({"config": ConfigRecord({"how": how})})
        replies = grid.send_and_receive([Message(content, n, "train") for n in grid.get_node_ids()])
        codes = [reply.error.code if reply.has_error() else -1 for reply in replies]
        print("codes", how, codes)
        print("counts", [reply.content["n"]["n"] for reply in replies if reply.has_content()])
"""
    )
    client = (
        IMPORTS
        + """
import os, sys
app = ClientApp()


@app.train()
def train(message, context):
    numbers = context.state.config_records.setdefault("n", ConfigRecord({"n": 0}))
    numbers["n"] += 1
    if context.node_config["partition-id"] == 2:
        how = message.content["config"]["how"]
        if how == "raise":
            raise ValueError("no")
        if how == "die":
            os._exit(1)
        if how == "exit":
            sys.exit(1)
    return Message(RecordDict({"n": numbers}), reply_to=message)
"""
    )
    folder = write_app(tmp_path / "app", server, client)
    expected = {"raise": 2, "fine": -1, "exit": 8, "die": 8}
    inline, ray = both(folder, num_supernodes=5, run_config={"name": "exit"})
    dead = run_app(folder, num_supernodes=5, run_config={"name": "die"}, backend="ray", run_dir="dead")
    for result, last in ((inline, "exit"), (ray, "exit"), (dead, "die")):
        lines = (result.folder / "log.txt").read_text().splitlines()
        found = [line for line in lines if line.startswith(("codes", "counts"))]
        assert found[::2] == [
            f"codes {how} {[-1, -1, expected[how], -1, -1]}" for how in ("raise", "fine", last, "fine")
        ]
        assert found[-1] == "counts [4, 4, 2, 4, 4]"


def test_auto_moves_to_workers_once_they_pay_and_changes_nothing(tmp_path, on_the_pool, monkeypatch):
    folder = write_app(tmp_path / "app", client=DRAWS)
    (folder / "small_app" / "part.py").write_text("def add(a, b):\n    return a + b\n")
    settings = {"num_supernodes": 6, "run_config": {"num-server-rounds": 4}}
    inline = run_app(folder, seed=3, backend="inline", run_dir=tmp_path / "inline", **settings)
    monkeypatch.setattr(auto_grid, "START", 0.0)
    monkeypatch.setattr("fedbn_flower.runtime.ray.background.os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(running, "is_debugged", lambda: False)
    begun = auto_grid.AutoGrid._consider

    def consider_and_wait(grid, done, groups):
        begun(grid, done, groups)
        wait_for(lambda: grid._pool.ready or not grid._pool.started)

    monkeypatch.setattr(auto_grid.AutoGrid, "_consider", consider_and_wait)
    moved = run_app(folder, seed=3, run_dir=tmp_path / "auto", **settings)
    assert moved.place["backend"] == "ray"
    assert_equal(inline, moved)


def test_a_run_that_is_stopped_leaves_no_process(marked_environment, tmp_path):
    """What is left of Ray by one that is killed, is `test_kills`'s."""
    mark, environment = marked_environment
    slow = CLIENT.replace("    (weights,) =", "    import time; time.sleep(0.3)\n    (weights,) =")
    folder = write_app(tmp_path / "app", client=slow)
    code = "import sys; from fedbn_flower.cli import main; sys.exit(main())"
    words = ["app", str(folder), "--backend", "inline", "-c", "num-server-rounds=1000"]
    run = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--run-dir", str(tmp_path / "run")],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for((tmp_path / "run" / "metrics.csv").exists, run)
    run.send_signal(signal.SIGTERM)
    assert run.wait(LONG) == 130
    wait_for(lambda: not processes_with(mark))
