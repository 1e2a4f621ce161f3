"""What a site's owner demands holds, whatever a server sends."""

import json

import pytest

from fedbn_flower.cli import main
from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy.floors import Floors
from fedbn_flower.site.ledger import Entry, SiteLedger, path_of_ledger

from .asked import KINDS, RUN, Site
from .runs import of_examples, of_local
from .test_composition import by_formula


def other_run(number):
    return f"20260101T000000000000-{number:08x}"


@pytest.fixture
def local(configured):
    """Makes a run with noise 20: a round has mu = 2/20."""
    return lambda **keys: of_local(configured, **{"dp_seed": -1, "dp_noise": 20.0, "dp_delta": 1e-5, **keys})


def lines_of(state, name="client-0"):
    return [json.loads(line) for line in path_of_ledger(state, name).read_text().splitlines()]


def test_a_budget_holds_over_all_runs_whatever_they_are_called(local, tmp_path):
    """mu^2 = k 0.01: epsilon at 1e-5 is 0.30, 0.44 and 0.55 for k of 1, 2 and 3."""
    by_hand = [by_formula(0.1 * k**0.5, 1e-5) for k in (1, 2, 3)]
    assert by_hand[1] < 0.5 < by_hand[2]
    site = Site(local(), state_dir=str(tmp_path), dp_max_epsilon=0.5, dp_max_delta=1e-5)
    for number in (1, 2):
        assert site.metrics("train", run=other_run(number), flower_run=number) == {"num-examples": 1}
    refusal = site.refusal("train", run=other_run(3), flower_run=3)
    assert refusal == (
        f"dp-max-epsilon: this site's budget of 0.5 is spent: epsilon is {by_hand[1]:.3f} over all runs, and "
        f"would be {by_hand[2]:.3f} with this answer"
    )
    further = site.refusal(
        "train", local(dp_noise=21.0, memory_name="another"), run=other_run(5), flower_run=4
    )
    assert further.startswith("dp-max-epsilon: this site's budget of 0.5 is spent")
    assert [line["epsilon"] for line in lines_of(tmp_path)] == pytest.approx(by_hand[:2], rel=1e-6)


def test_epsilon_is_at_the_owners_delta_and_for_all_notions_together(local, configured, tmp_path):
    """A round of DP-SGD with all examples in each of 2 steps, noise 10, after one of local privacy."""
    site = Site(local(), state_dir=str(tmp_path), dp_max_epsilon=9.0, dp_max_delta=1e-4)
    site.ask("train")
    example = of_examples(configured, dp_seed=-1, dp_noise=10.0, dp_delta=1e-6, batch_size=0, local_epochs=2)
    site.ask("train", example, run=other_run(2), flower_run=2)
    found = lines_of(tmp_path)
    assert [(line["notion"], line["delta"]) for line in found] == [("local", 1e-4), ("example", 1e-4)]
    mu = (0.1**2 + 2 * 0.1**2) ** 0.5
    assert found[-1]["epsilon"] == pytest.approx(by_formula(mu, 1e-4), rel=1e-6)


def test_a_runs_own_budget_holds_for_all_names_that_it_gives_itself(local, tmp_path):
    """Noise for two rounds. Flower's number of the run stays when the server invents names."""
    site = Site(local(dp_noise=0, dp_epsilon=1.0), state_dir=str(tmp_path))
    for number in (1, 2):
        assert site.ask("train", run=other_run(number)).has_content()
    wanted = r"^privacy: this client's budget is spent: it has answered 2 times in this run, and once more"
    assert site.refusal("train", run=other_run(3)).startswith(wanted.strip("^"))
    assert site.refusal("train", run=other_run(1), flower_run=7).startswith("privacy: this client's budget")
    assert site.ask("train", run=other_run(4), flower_run=8).has_content()  # no bound of the owner's


HERE = "is not allowed at this site; expected"
AT_SITE = "'example' or 'local'"
LOOSER = [
    ({"dp_required": True}, {"dp": "none"}, f"dp: 'none' {HERE} {AT_SITE}"),
    ({"dp_required": "example"}, {}, f"dp: 'local' {HERE} 'example'"),
    ({"dp_min_noise": 1.0}, {"dp": "client"}, f"dp: 'client' {HERE} {AT_SITE}"),
    ({"dp_max_delta": 1e-6}, {}, f"dp-delta: 1e-05 {HERE} at most 1e-06 (dp-max-delta)"),
    ({"dp_min_noise": 25.0}, {}, f"dp-noise: 20.0 {HERE} at least 25 (dp-min-noise)"),
    ({"dp_max_clip": 0.5}, {}, f"dp-clip: 1.0 {HERE} at most 0.5 (dp-max-clip)"),
    ({"dp_required": "local"}, {"dp_seed": 3}, f"dp-seed: 3 {HERE} -1: a public key protects nobody"),
]


@pytest.mark.parametrize(
    ("owner", "run", "line", "kind"),
    [*((*LOOSER[0], kind) for kind in KINDS), *((*case, "train") for case in LOOSER[1:])],
)
def test_a_run_that_asks_for_less_is_refused_before_anything_is_read(
    local, configured, monkeypatch, caplog, owner, run, line, kind
):
    config = (
        local(**run) if run.get("dp", "local") == "local" else configured(model="linear", client="shared")
    )
    if run.get("dp") == "client":
        config = configured(dp="client", dp_noise=2.0, dp_delta=1e-3, model="linear", client="shared")
    site = Site(config, **owner)
    site.ask("train")  # the model that is sent
    for reads in ("config.data_request.load_dataset", "site.inputs.inputs_of"):
        monkeypatch.setattr(f"fedbn_flower.{reads}", lambda *_: 1 / 0)
    caplog.clear()
    assert site.refusal(kind) == line
    assert [record.getMessage() for record in caplog.records if "refused" in record.msg] == [
        f"refused: {line}"
    ]


def test_noise_on_gradients_and_on_metrics_is_no_less_than_the_owners(local, configured):
    """Two metrics in each of two rounds for an epsilon of 50: noise that is far below 20."""
    example = of_examples(configured, dp_seed=-1, dp_noise=10.0, dp_delta=1e-6, batch_size=0)
    assert (
        Site(example, dp_min_noise=11.0).refusal("train")
        == f"dp-noise: 10.0 {HERE} at least 11 (dp-min-noise)"
    )
    site = Site(local(dp_metrics=50.0), dp_min_noise=20.0)
    assert site.ask("train").has_content()
    key, noise, said = site.refusal("evaluate").split(maxsplit=2)
    assert (key, said) == ("dp-noise:", f"{HERE} at least 20 (dp-min-noise)")
    assert 0 < float(noise) < 1


def test_an_extension_answers_nothing_before_either(configured, tmp_path):
    (tmp_path / "own.py").write_text(
        "from flwr.app import ConfigRecord, Message, RecordDict\n"
        "from fedbn_flower.extensions import Extension\n"
        "class Asks(Extension):\n"
        "    @classmethod\n"
        "    def answer(cls, message, context, config):\n"
        "        return Message(RecordDict({'own': ConfigRecord({'says': 'anything'})}), reply_to=message)\n"
    )
    config = configured(extension=f"{tmp_path / 'own.py'}:Asks", model="linear", client="shared")
    assert Site(config).ask("evaluate", extensions="own.Asks").content["own"]["says"] == "anything"
    refusal = Site(config, dp_required="local").refusal("evaluate", extensions="own.Asks")
    assert refusal == f"dp: 'none' {HERE} 'local'"


@pytest.mark.parametrize("last", [-1, 2.0, "2", True])
def test_a_run_is_complete_after_a_round_that_there_can_be(configured, last):
    site = Site(configured(model="linear", client="shared"))
    assert f"the server sent round {last!r}; expected a" in site.refusal("query.complete", server_round=last)
    assert site.ask("query.complete", server_round=0).has_content()


@pytest.mark.parametrize("kind", [*KINDS, "query.complete"])
def test_how_many_clients_there_are_is_not_found_out_before(configured, monkeypatch, tmp_path, kind):
    """By default the data say it, here those that a server names by their path at the site."""
    keys = {"num-clients": "auto", "partition": "natural:ward", "dataset": str(tmp_path / "here.csv")}
    config = configured(model="linear", client="shared")
    Site(config).ask("train")  # the model that is sent
    site = Site(config, keys, dp_required=True, state_dir=str(tmp_path))
    monkeypatch.setattr("fedbn_flower.config.data_request.load_dataset", lambda *_: 1 / 0)
    assert site.refusal(kind) == f"dp: 'none' {HERE} {AT_SITE}"


def test_what_asks_for_more_is_answered(local, tmp_path):
    owner = {"dp_required": "local, example", "dp_max_epsilon": 8, "dp_max_delta": 1e-4, "dp_min_noise": 10}
    assert Site(local(), state_dir=str(tmp_path), dp_max_clip=1, **owner).ask("train").has_content()


@pytest.mark.parametrize(
    ("owner", "line"),
    [
        (
            {"dp-max-epsilom": 1},
            r"^node-config: unknown name 'dp-max-epsilom'.*did you mean 'dp-max-epsilon'",
        ),
        (
            {"dp-max-epsilon": -1},
            r"^dp-max-epsilon: -1 is not allowed; expected a number > 0 in the node config$",
        ),
        ({"dp-max-epsilon": 1.0, "dp-max-delta": 1e-5}, r"^dp-max-epsilon: 1.0 .* a state-dir beside it"),
        ({"dp-max-epsilon": 1.0, "state-dir": "x"}, r"^dp-max-epsilon: 1.0 .* a dp-max-delta beside it"),
        ({"dp-required": "lokal"}, r"^dp-required: unknown name 'lokal'"),
        ({"dp-required-unit": ""}, r"^dp-required-unit: missing; expected the name of a column in"),
        ({"dp-required": "client", "dp-required-unit": "patient"}, r"^dp-required: 'client' is not allowed;"),
        ({"dp-required": "client", "dp-min-noise": 1.0}, r"^dp-required: 'client' is not allowed; expected"),
    ],
)
def test_bounds_that_cannot_be_held_are_refused(owner, line):
    with pytest.raises(UserError, match=line):
        Floors.of(owner)


# ---- the ledger -----------------------------------------------------------------------------------


def test_data_have_one_ledger_whatever_the_number_of_the_client(local, write_site, configured, tmp_path):
    write_site(configured(), 0, tmp_path / "data")
    for number in (0, 3):
        site = Site(
            local(dataset="shape:1x8x8:10"), state_dir=str(tmp_path / "state"), partition_id=number,
            data_path=str(tmp_path / "data"), cache_dir=str(tmp_path / "cache"),
        )  # fmt: skip
        assert site.ask("train").has_content()
    (path,) = (tmp_path / "state" / "privacy").glob("*.jsonl")
    assert len(path.read_text().splitlines()) == 2


def test_a_line_that_a_kill_cut_off_is_no_charge_and_another_is_no_ledger(local, tmp_path):
    site = Site(local(), state_dir=str(tmp_path))
    site.ask("train")
    path = path_of_ledger(tmp_path, "client-0")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"run": "2026')
    assert len(SiteLedger(path).entries()) == 1
    site.ask("train")
    assert len(lines_of(tmp_path)) == 2
    path.write_bytes(b"{}\n" + whole)
    assert "state-dir: the ledger" in site.refusal("train")


def test_a_public_key_is_in_the_ledger_as_no_noise(local, tmp_path):
    Site(local(dp_seed=1), state_dir=str(tmp_path)).ask("train")
    assert SiteLedger(path_of_ledger(tmp_path, "client-0")).entries()[0].epsilon == float("inf")


def test_a_command_shows_what_was_spent_by_run(local, tmp_path, capsys):
    for run, times in ((RUN, 2), (other_run(9), 1)):
        for _ in range(times):
            Site(local(), state_dir=str(tmp_path)).ask("train", run=run, flower_run=times)
    assert main(["ledger", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    two, one, all_three = (f"{by_formula(0.1 * k**0.5, 1e-5):.3f}" for k in (2, 1, 3))
    (first,) = [line for line in shown.splitlines() if RUN in line]
    (second,) = [line for line in shown.splitlines() if other_run(9) in line]
    (whole,) = [line for line in shown.splitlines() if "all runs" in line]
    assert (two in first, one in second, all_three in whole) == (True, True, True)
    assert main(["ledger", str(tmp_path), "--delta", "0.001"]) == 0
    assert f"{by_formula(0.1 * 3**0.5, 1e-3):.3f}" in capsys.readouterr().out
    assert main(["ledger", str(tmp_path / "none")]) == 2
    assert "ledger: no ledger in" in capsys.readouterr().err


def test_a_ledger_shows_names_as_they_are(tmp_path, capsys):
    """A server names the run, and a table its columns."""
    ledger = SiteLedger(path_of_ledger(tmp_path, "client-0"))
    for run, unit in (("[red]a", "b[/b]"), ("c[/c]\x1b[2J", "b[/b]")):
        new = Entry(run, 1, 1, "update", "example", 5.0, 1.0, 1, 1e-5, unit=unit)
        ledger.charge(new, lambda entries, new: None)
    assert main(["ledger", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[red]a", "'b[/b]'", r"c[/c]\x1b[2J"))
