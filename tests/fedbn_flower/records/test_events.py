"""Who watches a run: called at its start, and once at its end, whatever that is."""

import pytest
from flwr.app import MetricRecord

from fedbn_flower.records.events import Observer, observed
from fedbn_flower.records.summary import Summary
from strategies import PhaseReport

from .helpers import info, result

SUMMARY = {"rounds": 3, "later": {"key": 1}}
MADE = Summary.model_validate(SUMMARY)


class Notes(Observer):
    """Writes down its calls, and raises in those it is told to."""

    def __init__(self, notes, name, raises=()):
        self.notes, self.name, self.raises = notes, name, raises

    def note(self, call, *output):
        self.notes.append((self.name, call, *output))
        if call in self.raises:
            raise LookupError(f"{self.name} in {call}")

    def on_start(self, info):
        self.note("start", info.first_round)

    def on_end(self, summary, error):
        self.note("end", summary, error)


def test_each_starts_in_order_and_ends_after_the_summary_is_made():
    notes = []

    def finish():
        notes.append("finished")
        return MADE

    with observed([Notes(notes, "a"), Notes(notes, "b")], info(first_round=2), finish):
        notes.append("rounds")
    assert notes == [
        ("a", "start", 2),
        ("b", "start", 2),
        "rounds",
        "finished",
        ("a", "end", SUMMARY, None),
        ("b", "end", SUMMARY, None),
    ]


@pytest.mark.parametrize("error", [RuntimeError("failed"), SystemExit(3)])
def test_whatever_ends_a_run_each_observer_learns_of_it_once(error):
    notes = []
    with (
        pytest.raises(type(error)) as caught,
        observed([Notes(notes, "a"), Notes(notes, "b")], info(), lambda: MADE),
    ):
        raise error
    assert caught.value is error
    assert notes[2:] == [("a", "end", SUMMARY, error), ("b", "end", SUMMARY, error)]


def test_a_folder_that_cannot_be_finished_ends_the_run_too():
    notes, error = [], OSError("the disk is full")

    def finish():
        raise error

    with pytest.raises(OSError, match="full"), observed([Notes(notes, "a")], info(), finish):
        pass
    assert notes[1:] == [("a", "end", None, error)]


def test_who_cannot_start_ends_the_run_and_only_who_started_learns_of_it():
    notes = []
    three = [Notes(notes, "a"), Notes(notes, "b", raises=["start"]), Notes(notes, "c")]
    with pytest.raises(LookupError, match="b in start") as caught, observed(three, info(), lambda: None):
        notes.append("rounds")
    assert notes == [("a", "start", 1), ("b", "start", 1), ("a", "end", None, caught.value)]


def test_what_is_raised_at_the_end_comes_after_everybodys_end(caplog):
    notes = []
    three = [Notes(notes, name, raises=["end"]) for name in "ab"] + [Notes(notes, "c")]
    with pytest.raises(LookupError, match="a in end"), observed(three, info(), lambda: MADE):
        pass
    assert [name for name, call, *_ in notes if call == "end"] == ["a", "b", "c"]
    assert caplog.messages == ["Notes.on_end: LookupError: b in end"]


def test_what_is_raised_at_the_end_of_a_failed_run_does_not_hide_why_it_failed(caplog):
    notes, error = [], RuntimeError("failed")
    two = [Notes(notes, "a", raises=["end"]), Notes(notes, "b")]
    with pytest.raises(RuntimeError) as caught, observed(two, info(), lambda: None):
        raise error
    assert caught.value is error
    assert notes[-1] == ("b", "end", None, error)
    assert caplog.messages == ["Notes.on_end: LookupError: a in end"]


def report(**metrics):
    """Of partitions 0 and 1."""
    records = {p: MetricRecord({k: v[p] for k, v in metrics.items() if v[p] is not None}) for p in (0, 1)}
    return PhaseReport(records, {2: "it died"})


def test_the_numbers_that_clients_report_are_by_partition():
    found = report(loss=[0.5, None], steps=[3, 4], hits=[[1, 2], None])
    assert found.numbers("loss") == {0: 0.5}
    assert found.numbers("steps") == {0: 3.0, 1: 4.0}
    assert found.numbers("hits") == {}


def test_the_reports_of_a_round_are_by_phase():
    train, evaluate, new = report(loss=[1.0, 1.0]), report(loss=[0.5, 0.5]), report(loss=[2.0, 2.0])
    own = result(train=train, evaluate=train)
    assert own.reports == {"train": train}
    assert own.failures == 1
    all_three = result(train=train, evaluate=evaluate, others={"new": new})
    assert list(all_three.reports.items()) == [("train", train), ("evaluate", evaluate), ("new", new)]
    assert all_three.failures == 3


def test_training_examples_are_those_of_the_answers_to_train_messages_and_of_evaluations_that_say_so():
    """Partition 0 evaluated on what it holds out, and says how many it trains on; 1 does not say."""
    train = report(**{"num-examples": [10, None]})
    evaluate = report(**{"num-examples": [3, 3], "train-examples": [12, None]})
    assert result(train=train, evaluate=evaluate).train_examples == {"0": 12, "1": 0}
    assert result(train=train, evaluate=train).train_examples == {"0": 10, "1": 0}
