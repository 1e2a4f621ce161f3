"""A run in the words of a paper: against its configuration and its summary."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedbn_flower import simulate
from fedbn_flower.cli import main
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.checklists import CLAIM, TRIPOD, claim, is_of_images
from fedbn_flower.study.methods import methods, model_card, paragraphs

from ..results.written_cases import write_cases


@pytest.fixture(scope="module")
def ran(cache_dir, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """Simulates a round on the default sites, and reads its folder."""

    def run(**keys):
        folder = tmp_path_factory.mktemp("runs") / "run"
        small = {"rounds": 1, "local_epochs": 3, "batch_size": 0, "client_lr": 0.02, "backend": "inline"}
        simulate(**small | keys, cache_dir=str(cache_dir), run_dir=folder, progress=False)
        return Run.read(folder)

    return run


@pytest.fixture(scope="module")
def usual(ran):
    return ran(strategy="fedadam", server_lr=0.03, fraction_train=0.5, client="silobn", seed=7)


def test_every_choice_of_the_run_is_said(usual):
    written = paragraphs(usual)
    assert "Data of 4 sites (" in written["Data"]
    assert " and noisy) were used: scanners. They had " in written["Data"]
    assert "360 examples were held out" in written["Data"]
    assert "In one round a random 50% of the sites trained the model" in written["Training"]
    assert "on their own examples for 3 epochs." in written["Training"]
    assert "`sgd`, all examples in a batch, rate 0.02" in written["Training"]
    assert "The seed was 7." in written["Training"]
    aggregation = written["Aggregation"]
    assert "`fedadam` ([Reddi et al. 2021](https://arxiv.org/abs/2003.00295)): " in aggregation
    assert re.search(r"\(server-lr 0\.03, beta-1 0\.9, tau 0\.001, .*beta-2 0\.99\)", aggregation)
    assert "min-replies" not in aggregation  # as by default
    assert "`silobn` (" in aggregation
    assert "Privacy" not in written
    assert "on its own held-out examples" in written["Evaluation"]
    assert "fedbn-flower" in written["Software"]
    assert "@inproceedings{reddi2021adaptive," in methods(usual)


def test_settings_that_are_not_the_default_are_said(ran):
    keys = {"mean": "trimmed", "trim": 0.25, "min_replies": 2}
    found = paragraphs(ran(strategy="fedavg", **keys))["Aggregation"]
    assert re.search(r"`fedavg` .*\(mean trimmed, trim 0\.25, min-replies 2\b.*\)\. What stayed", found)
    assert "all with the same weight" in found


def test_that_statistics_were_adapted_is_said_with_its_paper(usual):
    adapted = replace(usual, config={**usual.config, "adapt-bn": True})
    assert "on its own training inputs, without labels ([Li et al. 201" in paragraphs(adapted)["Evaluation"]


def test_code_of_ones_own_is_named_and_not_run(usual, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('it was run')")
    own = replace(usual, config={**usual.config, "strategy": f"{file}:SignSGD"})
    assert f"`{file}:SignSGD`, a method of our own" in paragraphs(own)["Aggregation"]


def test_loss_missing_values_events_and_split_of_a_table_are_said(ran, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"]).assign(ill=np.arange(200) % 4 // 3)
    frame.loc[:20, "a"] = np.nan
    frame["site"] = np.arange(200) % 2
    frame.to_csv(tmp_path / "t.csv", index=False)
    keys = {"dataset": str(tmp_path / "t.csv"), "label_column": "ill", "partition": "natural:site"}
    keys |= {"num_clients": 2, "model": "linear", "strategy": "fedavg", "client": "shared"}
    run = ran(**keys, loss="class-balanced", metrics="sensitivity-at:0.9,auroc")
    written = paragraphs(run)
    held_out = run.summary.per_class.examples
    assert f"{sum(held_out)} examples were held out for evaluation, {held_out[1]} of them" in written["Data"]
    assert "a fixed 20 % of the rows of each 'site' is held out." in written["Data"]
    assert "The loss was `class-balanced` ([Cui et al. 2019]" in written["Training"]
    assert "The main metric was sensitivity at specificity 0.9. Further" in written["Evaluation"]
    assert "the threshold was chosen on the same cases" in written["Evaluation"]
    assert "a bootstrap over cases within sites" in written["Evaluation"]
    card = model_card(run)
    assert "| 11 Missing data | Model, above |" in card
    assert "| 13 Class imbalance | Model, above |" in card
    assert "| site | sensitivity at specificity 0.9 | 95 % interval |" in card
    assert f"{held_out[1]} events (`class 1`) held out are few" in card
    assert "2 sites cannot show how results vary over sites." in card
    plain = replace(run, config={**run.config, "loss": "auto", "group-column": "a"})
    assert "The loss was the standard one of the problem." in paragraphs(plain)["Training"]
    assert "a bootstrap over groups (`a`) within sites" in paragraphs(plain)["Evaluation"]
    assert "| 13 Class imbalance | missing |" in model_card(plain)


def test_privacy_is_said_with_its_numbers(ran):
    run = ran(dp="client", dp_noise=1.0, dp_delta=1e-3, dp_seed=3)
    epsilon = run.summary.privacy["epsilon"]
    assert f"epsilon {epsilon:.3g} at delta 0.001." in paragraphs(run)["Privacy"]
    assert "so this run itself protects nobody." in paragraphs(run)["Privacy"]


@pytest.mark.slow
def test_a_study_may_have_a_title_of_its_own(usual):
    run = replace(usual, config={**usual.config, "title": "Nodules at four hospitals"})
    assert model_card(run).startswith("# Model card: Nodules at four hospitals\n")
    assert "<h1>Nodules at four hospitals</h1>" in run_page(run)


def test_the_card_has_the_figures_of_each_site_and_names_what_is_missing(usual):
    card = model_card(usual)
    for client in usual.summary.clients.values():
        low, high = usual.summary.intervals["clients"][client["name"]]["accuracy"]
        found = [f"{100 * value:.1f} %" for value in (client["accuracy"], low, high)]
        assert "| {} | {} | {} to {} |".format(client["name"], *found) in card
    tripod, of_images = card.partition("## TRIPOD+AI")[2].split("## CLAIM")
    items = dict(re.findall(r"^\| (\d+ .*?) \| (.*?) \|$", tripod, re.MULTILINE))
    assert items.keys() == TRIPOD.keys()
    assert re.findall(r"^\| (\d+ .*?) \|", of_images, re.MULTILINE) == list(CLAIM)
    assert items["17 Ethical approval"] == "missing"
    assert items["23 Model performance"] == "Metrics, above"
    named = {where.removesuffix(", above") for where in items.values()} - {"missing"}
    assert named <= set(re.findall(r"^## (.*)$", card, re.MULTILINE))
    assert "nothing is known of new ones" in card
    assert "fedbn-sim --strategy fedadam" in card


def test_of_images_the_items_of_claim_are_filled_in_or_named_as_missing(usual):
    """There are 44, in their order; what a run knows of them depends on it."""
    assert [int(item.split()[0]) for item in CLAIM] == [*range(1, 45)]
    assert set(filter(None, CLAIM.values())) <= {"Data", "Model", "Training", "Evaluation", "Software"}
    run = usual
    items = dict(claim(run, paragraphs(run)).rows)
    found = {item.split()[0]: text for item, text in items.items()}
    assert found["8"] == found["11"] == found["20"] == found["33"] == found["39"] == "missing"
    assert found["24"] == "at random, seed 7"
    assert found["25"] == "Model, above"
    assert found["26"] == f"the last round, {run.summary.rounds}"
    assert found["29"] == found["37"] == "Metrics, above: 95 % intervals"
    groups = {"row": "examples", "text": "groups: 9 values of 'patient', 2 on both sides"}
    known = replace(run, config={**run.config, "learnt": [groups], "init": "/home/me/w.pt"})
    found = {item.split()[0]: text for item, text in claim(known, {}).rows}
    assert found["20"] == groups["text"]
    assert found["24"] == "from the weights of `/home/me/w.pt`"
    assert found["25"] == "missing"
    assert "`w.pt`" in model_card(known)
    assert "/home/me" not in model_card(known)


@pytest.mark.parametrize(("shape", "images"), [("1x16x24x24:2:masks", True), ("6:2", False)])
def test_claim_is_for_images_and_volumes(usual, shape, images):
    run = replace(usual, config={**usual.config, "shape": f"shape:{shape}"})
    assert is_of_images(run) == images
    assert ("## CLAIM" in model_card(run)) == images


def test_the_command_writes_both(usual, capsys, refused):
    for name in ("methods", "model-card"):
        assert main(["export", str(usual.folder), "--to", name]) == 0
        path = usual.folder / f"{name}.md"
        assert capsys.readouterr().out.strip() == str(path)
        assert path.read_text() == (methods if name == "methods" else model_card)(usual)
    assert "export: 'nowhere' is not the folder of a run" in refused("export", "nowhere", "--to", "methods")
    for key, value in (("client", "0"), ("format", "onnx")):
        line = refused("export", usual.folder, "--to", "methods", f"--{key}", value)
        assert line.startswith(f"{key}: '{value}' is not allowed; expected none with methods")


def test_sites_that_did_not_train_are_named_and_said_to_be_tested(ran):
    def said(**keys):
        run = ran(strategy="fedavg", client="shared", **keys)
        return paragraphs(run), run

    written, run = said(leave_one_site_out=True, left_out=1)
    rows = [line for line in model_card(run).splitlines() if line.startswith(("| all sites", "| coarse"))]
    (new,) = run.summary.new_clients.clients.values()
    assert rows[0].startswith("| all sites that trained | ")
    assert rows[1].startswith(f"| coarse, not trained on | {new['accuracy']:.1%}"[:-1])
    assert rows[1].count("|") == rows[0].count("|")
    assert "Data of 4 sites (clear, coarse, faint and noisy) were used" in written["Data"]
    assert "The data of coarse were not trained on. The other sites had " in written["Data"]
    assert "all sites but the one left out trained" in written["Training"]
    assert "The site left out evaluated the final model on all of its 449 examples." in written["Evaluation"]
    written, run = said(holdout_clients=2)
    names = [client["name"] for client in run.summary.new_clients.clients.values()]
    assert f"The data of {' and '.join(names)} were not trained on." in written["Data"]
    assert "all sites but 2 held out trained" in written["Training"]
    assert "The others evaluated the final model on their 180 held-out examples." in written["Evaluation"]
    written, _ = said(partition="iid", num_clients=3, holdout_clients=2, eval_data="global")
    assert "The others evaluated the final model on all held-out examples." in written["Evaluation"]


def test_a_single_event_is_one(tmp_path):
    targets = np.arange(30) == 0
    cases = {"rows": np.arange(30), "scores": np.full((30, 2), 0.5), "targets": targets.astype(np.int64)}
    run = Run.read(write_cases(tmp_path / "run", {"lyon": cases}))
    assert "30 examples were held out for evaluation, 1 of them an event (`ill`)." in paragraphs(run)["Data"]


def test_an_interval_without_bounds_is_left_empty(usual):
    """As of a site with a single event."""
    name, *_ = usual.summary.intervals["clients"]
    of_clients = {**usual.summary.intervals["clients"], name: {"accuracy": [None, None]}}
    summary = usual.summary.model_copy(
        update={"intervals": {**usual.summary.intervals, "clients": of_clients}}
    )
    card = model_card(replace(usual, summary=summary))
    (line,) = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
    assert line.split("|")[3].strip() == ""
