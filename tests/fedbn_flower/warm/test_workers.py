"""The life of a worker: when it stays, when it ends, when it is replaced; nothing is answered twice."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.partition_id import MOST_IDLE_SECONDS, USUAL_IDLE_SECONDS
from fedbn_flower.warm import place as module
from fedbn_flower.warm import workers
from fedbn_flower.warm.channel import Channel
from fedbn_flower.warm.node import NoWorker, WorkerLost
from fedbn_flower.warm.place import Place

from ...integration.processes import ROOT
from ...quick import some_quick
from .conftest import Asking, go_on, state_of, stop, until


def test_it_stays_for_the_next_message(lasting_node):
    """With the client's state, and the task that Flower gave the message."""
    node = lasting_node
    first, second = node.ask(), node.ask()
    assert first.process == second.process != os.getpid()
    assert (first.number, second.number) == (1, 2)
    assert first.task == 3
    assert node.workers() == [first.process]
    assert os.getpgid(first.process) == os.getsid(first.process) == first.process
    secret = Place(node.places()[0]).record().secret.encode()
    assert len(secret) == 64
    for name in ("cmdline", "environ"):
        assert secret not in open(f"/proc/{first.process}/{name}", "rb").read()  # noqa: SIM115


def test_it_stays_after_a_clients_error_and_refuses_a_stranger(lasting_node):
    node = lasting_node
    begun = node.ask()
    pid = begun.process
    for number, (do, error) in enumerate([("mistake", UserError), ("raise", KeyError)], 1):
        with pytest.raises(Exception, match="a mistake|key") as raised:
            node.ask(do=do)
        assert isinstance(raised.value, UserError) == (error is UserError)
        assert str(type(raised.value)) == str(error)
        answer = node.ask()
        assert answer.process == pid
        assert answer.number == begun.number + 2 * number  # what it had changed before the error stays too
    place = Place(node.places()[0])
    record = place.record()
    place.write(type(record)(record.process, record.identity, "00" * 32))
    with pytest.raises(OSError, match="another secret"):
        workers._connected(place, place.record(), 5)
    place.write(record)
    assert node.ask().process == pid


def test_what_the_client_writes_is_in_the_nodes_log_before_the_answer(node, capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    node.ask()
    node.ask(do="tell")
    out, errors = capfd.readouterr()
    assert "a line of print\n" in out
    assert "a line of the log" in errors
    assert "a line of C\n" in errors


@pytest.mark.slow
def test_two_runs_that_take_turns_have_a_worker_each(node):
    """A third has the place of the one that was used less recently."""
    one, two, again, two_again = (node.ask(run=run).process for run in (7, 8, 7, 8))
    assert (one, two) == (again, two_again)
    assert node.workers() == sorted([one, two])
    three = node.ask(run=9).process
    assert node.workers() == sorted([two, three])
    assert node.ask(run=8).process == two
    four = node.ask(run=7).process
    assert node.workers() == sorted([two, four])


@pytest.mark.slow
def test_one_with_memory_of_a_gpu_makes_room_for_another_run(node):
    one = node.ask(do="use a GPU").process
    until((node.places()[0] / "gpu").exists)
    assert node.ask().process == one
    other = node.ask(run=8).process
    assert node.workers() == [other]


@pytest.mark.slow
def test_another_configuration_has_another(node):
    """So have another version and other code: `test_identity`."""
    first, second = node.ask().process, node.ask(run_config={"rounds": 3}).process
    assert second != first
    assert node.workers() == [second]


@pytest.mark.slow
def test_one_that_was_killed_is_replaced_and_ends_when_its_run_is_complete(node):
    first = node.ask().process
    os.kill(first, signal.SIGKILL)
    second = node.ask().process
    assert second != first
    assert node.served() == [str(first), str(second)]
    assert node.workers() == [second]
    node.ask(query="query.complete")
    until(lambda: not node.workers())
    assert node.places() == []


@pytest.mark.slow
def test_one_that_hangs_between_messages_is_replaced(node, monkeypatch):
    monkeypatch.setattr(workers, "GREETING", 0.3)
    first = node.ask().process
    stop(first)
    second = node.ask().process
    assert second != first
    assert node.workers() == [second]


@pytest.fixture
def short_of_the_stopped(node, monkeypatch):
    """Patience ends soon once a worker is stopped, and not before: a busy machine may be slow."""

    class ShortOfTheStopped(Channel):
        def receive(self, *limits):
            def readable():
                return bool(select.select([self._connection], [], [], 0)[0])

            until(lambda: readable() or any(state_of(pid) == "T" for pid in node.workers()))
            if not readable():
                assert self._connection.gettimeout() == workers.PATIENCE
                self._connection.settimeout(0.1)
            return super().receive(*limits)

    monkeypatch.setattr(workers, "Channel", ShortOfTheStopped)


@pytest.mark.slow
@pytest.mark.usefixtures("short_of_the_stopped")
@pytest.mark.parametrize(("warm", "how"), [(True, "SIGSTOP"), (False, "SIGKILL")])
def test_one_that_dies_or_hangs_over_a_message_is_replaced_once(node, caplog, warm, how):
    """The state that it had changed is not that of the new one."""
    first = [str(node.ask().process)] if warm else []
    answer = node.ask(signal=how, times=len(first) + 1)
    served = node.served()
    assert answer.number == len(first) + 1
    assert len({*served}) == 2
    assert served == [*first, served[0], str(answer.process)]
    assert node.workers() == [answer.process]
    assert caplog.text.count("the worker ended before it had answered") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("short_of_the_stopped")
def test_one_that_hangs_and_cannot_be_ended_is_an_error(node, monkeypatch):
    """It might keep a memory later: neither another worker nor the client's process answers then."""
    node.ask()
    monkeypatch.setattr(module, "END", 0.1)
    monkeypatch.setattr(module.os, "killpg", lambda *_: None)
    with pytest.raises(WorkerLost, match=r"hangs \(timed out\), and cannot be ended \(the last worker does"):
        node.ask(signal="SIGSTOP", times=2)
    assert len(node.served()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"signal": "SIGKILL", "times": 2}, {"do": "exit"}])
def test_one_that_dies_twice_is_an_error_and_the_next_message_has_a_new_one(node, asked):
    with pytest.raises(WorkerLost, match="the site's worker ended before it had answered"):
        node.ask(**asked)
    assert len(node.served()) == 2
    assert node.workers() == []
    assert node.ask().number == 1


@pytest.mark.slow
@pytest.mark.parametrize("dp", some_quick(["local", "example"], quick={0}))
def test_what_a_ledger_was_charged_for_is_not_asked_again(node, dp):
    with pytest.raises(WorkerLost):
        node.ask(run_config={"dp": dp}, signal="SIGKILL", times=1)
    assert len(node.served()) == 1


@pytest.mark.slow
def test_it_ends_when_it_is_idle(node):
    node.ask(node_config={"idle-seconds": 1})
    until(lambda: not node.workers())
    assert node.places() == []


@pytest.mark.slow
def test_one_whose_folder_was_taken_away_leaves_the_next_one_alone(node):
    """As at the end of a session, or where old files are removed from the folder for temporary ones."""
    config = {"idle-seconds": 2}
    first = node.ask(node_config=config).process
    stop(first)  # its seconds pass, and it does not end before the other one is there
    Place(node.places()[0]).remove()
    second = node.ask(node_config={"idle-seconds": 60}).process
    assert node.workers() == sorted([first, second])
    go_on(first)
    until(lambda: node.workers() == [second])
    assert node.ask(node_config={"idle-seconds": 60}).process == second


@pytest.mark.slow
def test_one_whose_folder_cannot_be_made_again_ends_too(node, capfd):
    pid = node.ask(node_config={"idle-seconds": 2}).process
    stop(pid)
    place = Place(node.places()[0])
    place.remove()
    place.folder.parent.chmod(0o755)
    go_on(pid)
    until(lambda: not node.workers())
    place.folder.parent.chmod(0o700)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_a_message_keeps_it_from_ending(node):
    config = {"idle-seconds": 3}
    first, begun = node.ask(node_config=config).process, time.monotonic()
    while time.monotonic() < begun + 3.5:
        time.sleep(0.5)
        assert node.ask(node_config=config).process == first


@pytest.mark.slow
def test_it_ends_with_the_node_and_so_does_what_it_started(node):
    node.ask(do="child")
    assert len(node.workers()) == 2
    os.kill(node.process, signal.SIGKILL)
    until(lambda: not node.workers())
    until(lambda: node.places() == [])


@pytest.mark.slow
def test_where_the_system_has_no_descriptors_of_processes_it_does_too(node, monkeypatch):
    monkeypatch.setattr(workers, "descriptor_of", lambda _: None)
    node.ask()
    with subprocess.Popen(["true"]):
        pass
    assert node.workers()
    os.kill(node.process, signal.SIGKILL)
    os.waitpid(node.process, 0)
    until(lambda: not node.workers())


ASK = """
import sys
from pathlib import Path
sys.path[:] = {path!r}
from tests.fedbn_flower.warm.conftest import STAND_IN, Asking
from fedbn_flower.warm import workers
workers.BOOT = STAND_IN
workers.descriptor_of = lambda _: None
print(Asking(Path({folder!r}), {process}, "").ask(do="wait", file={file!r}).process, flush=True)
"""


@pytest.fixture
def waiting(node):
    """A client process of its own, whose worker waits while there is a file."""
    file = node.folder / "wait"
    file.touch()
    code = ASK.format(path=sys.path, folder=str(node.folder), process=node.process, file=str(file))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    until(node.served)
    yield process, file
    file.unlink(missing_ok=True)
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.slow
def test_it_ends_with_the_client_process_that_waits_for_it_and_commits_nothing(node, waiting):
    process, file = waiting
    process.kill()
    process.wait()
    until(lambda: not node.workers())
    file.unlink()
    assert "committed" not in node.served()
    assert node.ask().number == 1


@pytest.mark.slow
def test_a_second_message_does_not_wait_for_a_busy_one(node, waiting):
    process, file = waiting
    with pytest.raises(NoWorker, match="at work on another message"):
        node.ask()
    file.unlink()
    first = int(process.stdout.readline())
    assert node.served() == [str(first), "committed"]
    assert node.ask().process == first


@pytest.mark.slow
def test_a_folder_of_any_length_will_do(node, monkeypatch):
    (long := node.folder / ("x" * 200)).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert node.ask().process == node.ask().process


@pytest.mark.slow
def test_two_nodes_do_not_meet(node):
    """Also where one program starts the processes of both."""
    other = Asking(node.folder, node.process, node.mark, node_id=6)
    pids = [asked.ask().process for asked in (node, other, node, other)]
    assert pids[:2] == pids[2:]
    assert len({*pids}) == 2
    assert (node.served(), other.served()) == ([str(pids[0])] * 2, [str(pids[1])] * 2)
    assert len(node.places()) == 2


@pytest.mark.parametrize(
    ("broken", "words"),
    [("BOOT", "no worker starts"), ("executable", "no worker starts"), ("AF_UNIX", "AF_UNIX")],
)
def test_where_none_can_be_started_it_says_why(node, monkeypatch, broken, words):
    if broken == "BOOT":
        monkeypatch.setattr(workers, "BOOT", node.folder / "none.py")
    elif broken == "executable":
        monkeypatch.setattr(workers.sys, "executable", "/nowhere/python")
    else:
        monkeypatch.delattr(workers.socket, "AF_UNIX")
    with pytest.raises(NoWorker, match=words):
        node.ask()
    assert node.workers() == []


def test_what_the_guide_says_of_seconds():
    guide = " ".join((ROOT / "docs" / "deployment.md").read_text().split())
    assert f"(1 to {MOST_IDLE_SECONDS}; {USUAL_IDLE_SECONDS} by default)" in guide
    assert f"idle-seconds={USUAL_IDLE_SECONDS}" in guide
    assert "no sign of life for two minutes" in guide
    assert workers.PATIENCE == 120
