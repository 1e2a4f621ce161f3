"""What travels beside the model: as many records as an update has, and all that came."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from clients import FedAvgClient, Objective, Outcome
from fedbn_flower.core.session_objects import new_name, with_session_objects
from fedbn_flower.runtime.grid import identify_process, node_context
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.adapter import answer_all

PROTOTYPES = {"3": np.arange(4.0), "7": np.ones((1, 2))}


class Prototypes(Objective):
    """Sends back twice what came for each class, and how many steps it took for each parameter."""

    def finish(self, work):
        came = self.received["prototypes"]
        steps = {name: np.full(tuple(p.shape), work.steps, np.int64) for name, p in self.parameters.items()}
        return Outcome(records={"prototypes": {n: 2 * a for n, a in came.items()}, "steps": steps})


class InPlace(FedAvgClient):
    """Spoils what it was given, after it trained."""

    def fit(self, parameters, config):
        update = super().fit(parameters, config)
        for array in (*parameters, *parameters.records["prototypes"].values()):
            array[...] = 100
        update.metrics["told"] = 7
        return update


class Forgetful(FedAvgClient):
    """Does not say that it remembers."""

    def train(self, run, config):
        self.memory.write("mine", {"a": np.ones(1)})
        return super().train(run, config)


class Remembering(Forgetful):
    """Says so."""

    remembers = True


@pytest.fixture
def answers(configured):
    """What two clients of these classes answer to one and the same message."""

    def ask(**classes):
        names = {key: new_name(cls) for key, cls in classes.items()}
        with with_session_objects({names[key]: cls for key, cls in classes.items()}):
            config = configured(**{"client": "shared", **names})
            initial = Federation(config).initial
            given = {"server-round": 1, "client-lr": 0.1, "eval-splits": ""}
            content = RecordDict(
                {
                    "arrays": ArrayRecord({n: Array(a) for n, a in initial.items()}),
                    "prototypes": ArrayRecord({n: Array(a) for n, a in PROTOTYPES.items()}),
                    "config": ConfigRecord(given),
                }
            )
            identify_process()
            messages = [Message(content, dst_node_id=i + 1, message_type="train") for i in range(2)]
            return answer_all(messages, [node_context(i, 2, config.to_user_config()) for i in range(2)])

    return ask


def test_every_record_travels_both_ways(answers):
    """Names that are no parameters' too."""
    for answer in answers(objective=Prototypes):
        records = answer.content.array_records
        assert set(records) == {"arrays", "prototypes", "steps"}
        for name, array in PROTOTYPES.items():
            np.testing.assert_array_equal(records["prototypes"][name].numpy(), 2 * array, strict=True)
        steps = {name: array.numpy() for name, array in records["steps"].items()}
        assert {name for name, array in steps.items() if array.min() == array.max() > 0} == set(steps)
        assert {n: a.shape for n, a in steps.items()} == {
            n: a.shape for n, a in records["arrays"].items() if "running" not in n and "tracked" not in n
        }


def test_what_a_client_was_given_is_its_own(answers):
    """What it does to it in place is nothing to the next one."""
    spoiling = answers(client=InPlace, objective=Prototypes)
    for spoilt, plain in zip(spoiling, answers(objective=Prototypes), strict=True):
        assert spoilt.content["metrics"]["told"] == 7
        for record in ("arrays", "prototypes", "steps"):
            assert spoilt.content[record] == plain.content[record]


def test_a_client_that_writes_to_its_memory_has_to_say_that_it_remembers(answers):
    """Elsewhere than in one process, what it wrote would be lost."""
    for answer in answers(client=Forgetful):
        assert "Forgetful writes mine to its memory but does not set `remembers`" in answer.error.reason
    assert not any(answer.has_error() for answer in answers(client=Remembering))


@pytest.mark.parametrize("taken", ["arrays", "metrics"])
def test_a_further_record_does_not_take_the_models_name(taken, answers):
    class Takes(Objective):
        def finish(self, work):
            return Outcome(records={taken: {"x": np.zeros(1)}})

    for answer in answers(objective=Takes):
        assert f"a further record cannot be called '{taken}'" in answer.error.reason
