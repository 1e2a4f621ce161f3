"""Extensions of one's own: their settings, columns, state and summary; what they may not do."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedbn_flower import Conflict, Extension, RunFailed, Stop, UserError, simulate
from fedbn_flower.cli import main
from fedbn_flower.config.making import run_config
from strategies import setting
from tests.test_house import ROOT

from ..records.helpers import rows_of

PLATEAU = f"{ROOT}/examples/plateau.py:Plateau"


@pytest.fixture
def run(cache_dir, tmp_path):
    """Simulates on the digits, and gives the folder's rows and summary."""

    def simulated(name="run", **keys):
        small = {"rounds": 4, "local_epochs": 1, "batch_size": 128, "num_clients": 2, "partition": "iid"}
        small |= {"model": "linear", "client": "shared", "backend": "inline", "progress": False}
        result = simulate(**small | {"run_dir": tmp_path / name, "cache_dir": cache_dir} | keys)
        return rows_of(result.folder), json.loads((result.folder / "summary.json").read_text())

    return simulated


def falls(rows):
    losses = [float(row["train-loss"]) for row in rows]
    return [before - after for before, after in pairwise(losses)]


def test_the_example_has_a_column_a_summary_and_ends_the_run(run, tmp_path):
    """It ends in the first round in which the loss falls by less than in half of all."""
    whole, summary = run("plain", rounds=5)
    assert "extensions" not in summary
    assert summary["stopped"] is None
    least = sorted(falls(whole))[2]
    last = next(i for i, fall in enumerate(falls(whole), start=2) if fall < least)
    rows, summary = run(extension=PLATEAU, least_fall=least, rounds=5)
    assert len(rows) == last < 5
    assert summary["stopped"] == "plateau"
    assert [float(row["loss-fall"]) for row in rows[1:]] == pytest.approx(falls(rows), rel=1e-9)
    assert summary["extensions"] == {"plateau.Plateau": {"last-fall": pytest.approx(falls(rows)[-1])}}
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The run ended early: plateau." in page
    assert f"<dt>plateau.Plateau, last-fall</dt><dd>{falls(rows)[-1]:.6g}</dd>" in page


class Counts(Extension):
    """Counts rounds."""

    start: int = setting(0, ge=0, alias="count-from", description="where it begins")

    def __init__(self, run, **settings):
        super().__init__(run, **settings)
        self.seen = [self.start]

    @classmethod
    def conflicts(cls, config):
        if config["rounds"] > 9:
            yield Conflict("rounds", config["rounds"], "at most 9, as far as it can count")

    def on_start(self, info):
        self.seen.append(f"from {info.first_round} in {info.folder.name}")

    def after_round(self, result):
        self.seen.append(result.server_round)

    def on_round(self, result):
        self.seen.append(result.facts)

    def columns(self):
        return {"counted": len(self.seen)}

    def on_end(self, summary, error):
        ENDED.append((self.seen, summary["extensions"], error))

    def summary(self):
        return {"counted": len(self.seen)}


ENDED = []


def test_a_class_of_this_session_with_its_settings_is_called_in_this_order(run):
    ENDED.clear()
    run(extensions=[Counts], count_from=5, rounds=1)
    ((seen, summary, error),) = ENDED
    assert seen == [5, "from 1 in run", 1, {"Counts": {"counted": 3.0}}]
    assert summary == {"Counts": {"counted": 3}}  # written before observers see the round
    assert error is None


def test_several_decide_in_their_order(run):
    class Twice(Counts):
        """Ends the run."""

        def after_round(self, result):
            return Stop("twice") if result.server_round == 2 else None

        def columns(self):
            return {}

    rows, summary = run(extensions=[Counts, PLATEAU, Twice], least_fall=0.0)
    assert len(rows) == 2
    assert summary["stopped"] == "twice"
    assert sorted(summary["extensions"]) == ["Counts", "Twice", "plateau.Plateau"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"extension": "nobody"}, "^extension: unknown name 'nobody'"),
        ({"extension": f"{ROOT}/examples/signsgd.py:SignSGD"}, "^extension: .* a subclass of Extension"),
        ({"extensions": [3]}, "^extension: an object of type int .* expected a subclass of Extension"),
        ({"extensions": [Counts], "extension": PLATEAU}, "^extension: given twice, the second time as ext"),
        ({"extension": f"{PLATEAU},{PLATEAU}"}, "^extension: .*expected each extension once"),
        ({"extension": PLATEAU, "least_fall": -1}, "^least-fall: -1 is not allowed; expected a number >= 0"),
        ({"least_fall": 0.1}, "^configuration: unknown name 'least-fall'"),
        (
            {"extensions": [type("Old", (Extension,), {"keeps": lambda self: True, "__doc__": "Old."})]},
            r"^extension: .* without Old\.keeps, which is not called any more: return the result",
        ),
        (
            {"extensions": [Counts], "rounds": 10},
            "^rounds: the default 10 is not allowed; expected at most 9, as far as it",
        ),
    ],
)
def test_mistakes_are_one_line_before_anything_starts(run, tmp_path, keys, line):
    with pytest.raises(UserError, match=line) as error:
        run(**keys)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


class Sums(Extension):
    """Sums the models of all rounds."""

    published_only = True

    def __init__(self, run, **settings):
        super().__init__(run, **settings)
        self.sums, self.rounds = {}, 0

    def after_round(self, result):
        model = {name: array.numpy().astype(np.float64) for name, array in result.arrays.items()}
        self.sums = {name: self.sums.get(name, 0) + array for name, array in model.items()}
        self.rounds += 1

    def state(self):
        return {**self.sums, "rounds": self.rounds}

    def restore(self, state):
        self.rounds = state["rounds"]
        self.sums = {name: value for name, value in state.items() if name != "rounds"}

    def on_end(self, summary, error):
        ENDED.append((self.rounds, self.sums))


@pytest.mark.slow
def test_a_state_may_have_arrays(run, tmp_path, cache_dir):
    ENDED.clear()
    run("whole", extensions=[Sums], rounds=2)
    run("parts", extensions=[Sums], rounds=1)
    here = {"backend": "inline", "progress": False, "cache_dir": str(cache_dir)}
    simulate(resume=tmp_path / "parts", extensions=[Sums], rounds=2, **here)
    (_, whole), _, (number, parts) = ENDED
    assert number == 2
    assert {name: array.tobytes() for name, array in parts.items()} == {
        name: array.tobytes() for name, array in whole.items()
    }


def test_one_that_uses_what_is_published_goes_with_privacy(run):
    private = {"dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3, "dp_seed": 0}
    rows, _ = run(extensions=[Sums], rounds=1, **private)
    assert float(rows[0]["epsilon"]) > 0
    with pytest.raises(UserError, match="expected one that declares published_only = True"):
        run("other", extensions=[Counts], rounds=1, **private)


class First(Extension):
    """Keeps the model of the first round, and notes who trained in it."""

    def after_round(self, result):
        self.trained = result.train.metrics
        return replace(result, kept=result.server_round == 1)

    def columns(self):
        return {"trained": len(self.trained), "first": dict.fromkeys(self.trained, 1)}


@pytest.mark.slow
def test_a_round_is_kept_as_an_extension_says_and_has_columns_of_clients(run, tmp_path):
    rows, _ = run("two", extensions=[First], rounds=2)
    run("one", rounds=1)
    kept, first = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    assert all((kept[name] == array).all() for name, array in first.items())
    assert [row["trained"] for row in rows] == [row["replies"] for row in rows]
    of_clients = {(row["phase"], row["first"]) for row in rows_of(tmp_path / "two", "clients.csv")}
    assert of_clients == {("train", "1"), ("evaluate", "")}


def returning(method, value):
    return type("Wrong", (Extension,), {method: lambda *_: value, "__doc__": "Wrong."})


HOOKS = [
    *(("before_round", r"Stop\(reason\) or None"), ("send", "an ArrayRecord"), ("trained", "Outgoing")),
    *(("settings", "a mapping"), ("received", "a Message"), ("published", "an ArrayRecord")),
    ("evaluate", "a mapping of PhaseReports"),
]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        *((returning(hook, 3), rf"Wrong\.{hook} returned 3, expected {words}\b") for hook, words in HOOKS),
        (returning("after_round", True), r"Wrong.after_round returned True, expected Stop\(reason\) or None"),
        (returning("columns", [1]), "Wrong.columns returned a list of int, expected numbers by the name"),
        (returning("columns", {"a\n": 1}), "Wrong.columns returned .*, expected numbers by the name"),
        (returning("columns", {"round": 1.0}), "Wrong.columns returned 'round', which is another's column"),
        (returning("summary", {"a": {1}}), "Wrong.summary returned .*, expected values that JSON can hold"),
        (returning("state", 3), "Wrong.state returned 3, expected a mapping of values that JSON can hold"),
        (type("Wrong", (Extension,), {"after_round": lambda *_: 1 / 0}), "raised ZeroDivisionError"),
    ],
)  # fmt: skip
def test_mistakes_in_its_methods_end_the_run_in_one_line(run, wrong, line):
    with pytest.raises(RunFailed, match=line) as error:
        run(extensions=[wrong], rounds=1)
    assert "extension: " in str(error.value)
    assert "\n" not in str(error.value)


def test_its_settings_are_in_the_configuration():
    config = run_config({"extension": PLATEAU, "least-fall": "0.5"}).to_user_config()
    assert (config["extension"], config["least-fall"]) == (PLATEAU, 0.5)


def test_the_norm_of_the_update_is_a_column_also_of_a_resumed_run(run, tmp_path, cache_dir):
    """By the models that it leaves after one round and after two."""
    run("run", rounds=1, extension="update-norm")
    before = load_file(tmp_path / "run" / "model.safetensors")
    here = {"backend": "inline", "progress": False, "cache_dir": str(cache_dir)}
    simulate(resume=tmp_path / "run", rounds=2, **here)
    after, rows = load_file(tmp_path / "run" / "model.safetensors"), rows_of(tmp_path / "run")
    squares = sum(np.sum((after[name].astype(np.float64) - before[name]) ** 2) for name in after)
    assert float(rows[0]["update-norm"]) > 0
    assert float(rows[1]["update-norm"]) == pytest.approx(np.sqrt(squares), rel=1e-12)
