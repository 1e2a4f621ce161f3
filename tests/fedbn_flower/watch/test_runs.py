"""The table of runs, and what chooses among them."""

import json
import shutil

import numpy as np
import pytest
from filelock import FileLock

from fedbn_flower.cli import main
from fedbn_flower.core.errors import UserError
from fedbn_flower.watch.index import Index
from fedbn_flower.watch.page import Asked, metric_of
from fedbn_flower.watch.query import Query
from fedbn_flower.watch.run_page import facts
from tests.fedbn_flower.results.written import change_run
from tests.fedbn_flower.results.written_cases import write_cases

from .folders import add_round, append, write_run, write_summary

VALUES = {
    "run": "a/fedyogi-seed0",
    "strategy": "fedyogi",
    "accuracy": 0.9,
    "seed": 0,
    "augment": True,
    "note": "",
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("strategy=fedyogi and accuracy>0.9", False),
        ("accuracy>=90%", True),
        ("strategy!=fedyogi or seed<1", True),
        ("strategy=fedavg or strategy=fedyogi and seed=1", False),  # `and` binds more
        ("(strategy=fedavg or strategy=fedyogi) seed=0.0", True),
        ("not strategy=fedavg", True),
        ("strategy=fedavg OR Not seed=1 AND seed=0", True),
        ("strategy~YOGI", True),
        ("FedYogi", True),
        ("augment=true", True),
        ("lacking!=1", True),
        ("lacking<1", False),
        ('lacking=""', False),
        ('run = "a/fedyogi-seed0"', True),
        ('strategy~"\'"', False),
    ],
)
def test_a_filter_lets_through(text, holds):
    assert Query.parse(text).test(VALUES) is holds


def test_a_filter_that_cannot_be_read_is_one_line():
    wrong = {
        "(seed=0": "(seed=0", "seed=": "=", "=0": "=0", "seed=0)": ")", "and seed=0": "and seed=0", "'": "'",
        "seed=0 or": "its end", "a=1) or (a=2": ") or (a=2", "seed= and seed>0": "= and seed>0", "()": "()",
    }  # fmt: skip
    for text, at in wrong.items():
        with pytest.raises(UserError) as refused:
            Query.parse(text)
        assert str(refused.value).startswith(f"where: {text!r} is not allowed at {at!r}; expected KEY=VALUE")
    with pytest.raises(UserError, match="where: seed>'many' is not allowed; expected a number after '>'"):
        Query.parse("seed>many")


@pytest.fixture
def runs(tmp_path):
    for seed, accuracy in enumerate((0.75, 0.8125)):
        write_run(tmp_path / f"fedavg-{seed}", (0.5, accuracy), seed=seed)
    write_run(tmp_path / "sweep" / "yogi", (0.25, 0.875), strategy="fedyogi")
    return tmp_path


def names(folder, *arguments):
    index = Index(folder)
    index.refresh()
    return [entry.name for entry in index.chosen(*arguments)]


def test_the_command_prints_the_runs_that_it_is_asked_for(runs, capsys):
    assert main(["runs", str(runs), "--where", "strategy=fedavg or seed=0", "--sort", "accuracy:down"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = "run state strategy seed round rounds accuracy loss seconds failures"
    assert lines[1].split() == header.split()
    rows = [line.split() for line in lines[3:6]]
    assert [row[0] for row in rows] == ["sweep/yogi", "fedavg-1", "fedavg-0"]
    assert rows[1] == ["fedavg-1", "ended", "fedavg", "1", "2", "2", "81.2", "%", "0.3333", "1.75", "0"]
    assert lines[-1] == "3 of 3 runs"


def test_a_key_that_is_a_figure_has_one_column_and_the_data_are_said_first(runs, capsys):
    many = {f"key-{i}": i for i in range(9)}
    write_run(runs / "long", (0.5,), rounds=9, dataset="patients.csv", **many)
    assert main(["runs", str(runs), "--where", "rounds>1"]) == 0
    header = capsys.readouterr().out.splitlines()[1].split()
    assert header[:4] == ["run", "state", "strategy", "dataset"]
    assert header.count("rounds") == 1


def test_a_name_that_no_run_has_and_no_folder_are_one_line(runs, refused):
    line = "where: unknown name 'stratgy' (did you mean 'strategy'?)"
    assert refused("runs", runs, "--where", "stratgy=fedavg").startswith(line)
    assert refused("runs", runs, "--sort", "acuracy").startswith("sort: unknown name 'acuracy' (did you mean")
    assert "expected a folder with the folders of runs" in refused("runs", runs / "none")


def test_the_index_follows_the_folders(runs, monkeypatch):
    monkeypatch.setattr("fedbn_flower.watch.index.AGAIN", 0)
    index = Index(runs)
    index.refresh()
    assert [*index.entries] == ["fedavg-0", "fedavg-1", "sweep/yogi"]
    before, unchanged = index.stamp, index.entries["fedavg-1"]
    index.refresh()
    assert index.stamp == before
    shutil.rmtree(runs / "fedavg-0")
    live = write_run(runs / "live", (0.5,), rounds=3)
    index.refresh()
    assert index.stamp != before
    assert [*index.entries] == ["fedavg-1", "live", "sweep/yogi"]
    assert index.entries["fedavg-1"] is unchanged
    assert index.entries["live"].state == "stopped"
    with FileLock(live / ".lock"):
        index.refresh()
        assert index.entries["live"].state == "running"
        assert index.entries["live"].seconds_left == 1.0  # two rounds of half a second
        add_round(live, 2, 0.625)
        index.refresh()
        assert index.entries["live"].figures["accuracy"] == 0.625
    add_round(live, 3, 0.75)
    write_summary(live, 3, 0.75)
    index.refresh()
    assert index.entries["live"].state == "ended"


def test_a_run_whose_clients_all_failed_or_whose_model_diverged_has_failed(tmp_path):
    """As ``metrics.csv`` and ``failures.csv`` say, the summary or its lack notwithstanding."""
    write_run(tmp_path / "few", **{"min-replies": 3})
    write_run(tmp_path / "fine", **{"min-replies": 2})
    write_run(tmp_path / "killed", (0.5,))
    write_run(tmp_path / "lost", names=())
    diverged = write_run(tmp_path / "nan", (0.5,), rounds=9)
    append(diverged / "metrics.csv", [(2, 0.5, 2, 2, "", "", 1000, 500)])
    append(
        diverged / "failures.csv",
        [(2, "evaluate", 0, "FloatingPointError: evaluation diverged: the loss is nan")],
    )
    assert names(tmp_path, "state=failed") == ["few", "lost", "nan"]
    assert names(tmp_path, "state=ended") == ["fine"]
    assert names(tmp_path, "state=stopped") == ["killed"]


def test_notes_are_kept_beside_the_run_and_starred_ones_come_first(runs):
    index = Index(runs)
    index.refresh()
    index.write_notes("sweep/yogi", {"starred": True, "note": "the one"})
    assert names(runs) == ["sweep/yogi", "fedavg-0", "fedavg-1"]
    assert names(runs, "note~one") == ["sweep/yogi"]


def test_a_damaged_run_is_a_line_and_others_are_shown(runs, capsys):
    (runs / "fedavg-0" / "metrics.csv").write_text("round,loss\none,2\n")
    (runs / "fedavg-1" / "config.json").write_text("{")
    assert main(["runs", str(runs)]) == 0
    *_, count, first, second = capsys.readouterr().out.splitlines()
    assert count == "1 of 1 run"
    assert "fedavg-0" in first
    assert "fedavg-1" in second


@pytest.fixture
def rare(tmp_path):
    """A run of two events in twelve cases, one above all others, one above all but one: 19 of 20 pairs."""
    event = np.array([0.7, 0.2, 0.5, *[0.1] * 9])
    targets = np.array([1, 1, *[0] * 10])
    of_site = {"rows": np.arange(12), "scores": np.stack([1 - event, event], 1), "targets": targets}
    return write_cases(tmp_path / "rare", {"lyon": of_site}, strategy="rare")


def entries_of(folder):
    index = Index(folder)
    index.refresh()
    return index.entries


def figures_of(folder):
    (entry,) = entries_of(folder).values()
    return entry.main_metric, entry.figures[entry.main_metric], facts(entry)


def test_a_run_of_a_rare_event_is_compared_by_the_auroc_of_all_cases(runs, rare, capsys):
    """No metric of a round says so."""
    assert main(["runs", str(runs), "--where", "strategy=rare"]) == 0
    header, _, row = (line.split() for line in capsys.readouterr().out.splitlines()[1:4])
    assert "accuracy" not in header
    assert dict(zip(header, row, strict=True))["pooled-auroc"] == "0.95"
    assert main(["runs", str(runs), "--sort", "pooled-auroc"]) == 0
    assert capsys.readouterr().out.splitlines()[3].startswith("  rare")
    metric, value, said = figures_of(rare)
    assert (metric, value) == ("pooled-auroc", pytest.approx(0.95))
    assert "pooled-auroc" in said


@pytest.mark.parametrize("how", ["goes on", "damaged", "frequent", "left out"])
def test_another_is_compared_by_what_its_rounds_have(rare, how):
    """One that goes on has the cases of an earlier end."""
    keys, summary = (json.loads((rare / f"{name}.json").read_text()) for name in ("config", "summary"))
    if how == "goes on":
        keys["rounds"] += 1
    elif how == "damaged":
        (rare / "predictions.parquet").write_bytes(b"PAR1")
    elif how == "frequent":
        summary["per-class"] = {"examples": [8, 4]}
    else:
        left_out = {"mean": {"accuracy": 0.5}, "clients": {"1": {"accuracy": 0.5}}}
        summary |= {"new-clients": left_out, "new-clients-as-received": left_out}
    (rare / "config.json").write_text(json.dumps(keys))
    (rare / "summary.json").write_text(json.dumps(summary))
    assert figures_of(rare)[0] != "pooled-auroc"


def one_site(events):
    """Twelve cases, of which the first ones are events and have the highest scores."""
    event = np.linspace(0.9, 0.1, 12)
    targets = np.int64(np.arange(12) < events)
    return {"lyon": {"rows": np.arange(12), "scores": np.stack([1 - event, event], 1), "targets": targets}}


def test_runs_of_the_same_data_are_compared_alike(tmp_path):
    """Of twelve held-out cases two are events, under another seed three, which alone would not be rare."""
    few, many, other = (tmp_path / name for name in ("few", "many", "other"))
    write_cases(few, one_site(2))
    write_cases(many, one_site(3), seed=1)
    write_cases(other, one_site(3), dataset="other.csv")
    (other / "partitions.csv").write_text("partition,class,examples\n0,well,9\n0,ill,1\n")
    change_run(other, {"events": ["ill"]})  # rare in training: what has ended goes by its cases
    goes_on = write_cases(tmp_path / "goes-on", one_site(2), rounds=9)
    compared = {name: entry.main_metric for name, entry in entries_of(tmp_path).items()}
    assert compared == dict.fromkeys(("few", "many"), "pooled-auroc") | {
        "goes-on": "loss",
        "other": "accuracy",
    }
    assert entries_of(tmp_path)["many"].figures["pooled-auroc"] == 1
    assert "<dt>loss</dt>" in facts(entries_of(tmp_path)[goes_on.name])  # no round has an AUROC
    (many / "predictions.parquet").unlink()
    compared = {name: entry.main_metric for name, entry in entries_of(tmp_path).items()}
    assert compared == {"few": "pooled-auroc", "many": "loss", "goes-on": "loss", "other": "accuracy"}


@pytest.mark.parametrize(("events", "leads"), [(19, "loss"), (20, "accuracy"), (0, "accuracy")])
def test_a_run_that_goes_on_is_led_by_what_its_training_examples_say(tmp_path, events, leads):
    folder = write_run(tmp_path / "run", (0.5,), **{"class-names": ["no", "=yes"], "events": ["=yes"]})
    (folder / "partitions.csv").write_text(
        f"partition,class,examples\n0,no,40\n0,'=yes,{events}\n1,no,{60 - events}\n1,'=yes,0\n"
    )
    (entry,) = entries_of(tmp_path).values()
    assert entry.by_round == leads
    assert f"<dt>{leads}</dt>" in facts(entry)


def test_what_leads_a_rare_event_by_round_is_its_auroc_if_rounds_have_one(rare):
    metrics = rare / "metrics.csv"
    (entry,) = entries_of(rare).values()
    assert entry.by_round == "loss"
    header, *rows = metrics.read_text().splitlines()
    metrics.write_text("\n".join([f"{header},auroc,pooled-auroc", *(f"{row},0.5,0.75" for row in rows)]))
    (entry,) = entries_of(rare).values()
    assert entry.by_round == "pooled-auroc"


def test_a_damaged_table_of_training_examples_hides_no_run(tmp_path, capsys):
    for name, text in (
        ("good", "partition,class,examples\n0,ill,1\n0,well,99\n"),
        ("torn", "partition,cl\n0,x\n"),
    ):
        folder = write_run(tmp_path / name, (0.5,), events=["ill"], dataset=name)
        (folder / "partitions.csv").write_text(text)
    assert {name: entry.by_round for name, entry in entries_of(tmp_path).items()} == {
        "good": "loss",
        "torn": "accuracy",
    }
    assert main(["runs", str(tmp_path)]) == 0
    assert "2 of 2 runs" in capsys.readouterr().out


def test_without_kept_cases_the_training_examples_say_how_rare_an_event_is(rare):
    """Also of a run that has ended."""
    (rare / "predictions.parquet").unlink()
    change_run(rare, {"events": ["ill"]})
    assert figures_of(rare)[0] == "accuracy"
    (rare / "partitions.csv").write_text("partition,class,examples\n0,ill,1\n0,well,99\n")
    assert figures_of(rare)[0] == "loss"


def with_columns(folder, **columns):
    """Give every round these values, by the columns of ``metrics.csv``."""
    metrics = folder / "metrics.csv"
    header, *rows = metrics.read_text().splitlines()
    names, values = (",".join(map(str, some)) for some in (columns, columns.values()))
    metrics.write_text("\n".join([f"{header},{names}", *(f"{row},{values}" for row in rows)]) + "\n")


def test_curves_are_of_a_metric_that_all_runs_have(runs, rare):
    """Accuracy by round is the metric of a frequent event, even if there is one of all cases."""
    with_columns(runs / "fedavg-0", **{"pooled-accuracy": 0.9})
    entries = entries_of(runs)
    assert entries["fedavg-0"].by_round == metric_of(Asked(), [*entries.values()]) == "accuracy"
    with_columns(rare, **{"pooled-auroc": 0.75})
    first, second = entries_of(rare).values(), entries_of(runs / "fedavg-1").values()
    assert metric_of(Asked(), [*first]) == "pooled-auroc"
    assert metric_of(Asked(), [*first, *second]) == "accuracy"
