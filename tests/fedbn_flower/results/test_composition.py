"""Private runs on the same data add up: what is said of them by ``compare``, a sweep, and of a reference."""

import pytest

from fedbn_flower.cli import main
from fedbn_flower.core.errors import UserError
from fedbn_flower.results.composition import added_up
from fedbn_flower.results.report.runs_by_seed import Sweep
from fedbn_flower.results.report.sweep_page import sweep_page

from .written import METRICS, add_run, summary_of, write_run

CLIENTS = {"notion": "client, central", "adjacency": "add-or-remove-one", "claim": "guarantee"}
ONE, OTHER = CLIENTS | {"epsilon": 2.5, "delta": 1e-5}, CLIENTS | {"epsilon": 1.25, "delta": 2e-5}
LINE = (
    "Privacy adds up: 2 runs on the same data (client, central; add-or-remove-one) are epsilon 3.75 "
    "at delta 3e-05 "
    "together"
)


def test_epsilons_and_deltas_of_one_notion_on_one_data_set_add_up():
    local = ONE | {"notion": "client, local", "adjacency": "replace-one"}
    assert added_up([("a", ONE), ("b", OTHER)]) == []
    assert added_up([("a", ONE), ("a", local)]) == []
    assert added_up([("a", {}), ("a", {})]) == []
    assert added_up([("a", ONE), ("b", ONE), ("a", OTHER)]) == [f"{LINE}."]
    assert added_up([("a", ONE), ("a", {}), ("a", OTHER)]) == [
        f"{LINE}. 1 further run on the same data had no privacy, and no bound."
    ]
    (line,) = added_up([("a", ONE), ("a", {})])
    assert line.startswith(
        "Privacy adds up: 1 run on the same data (client, central; add-or-remove-one) is eps"
    )
    assert line.endswith("1 further run on the same data had no privacy, and no bound.")
    (line,) = added_up([("a", ONE), ("a", OTHER | {"claim": "simulated"})])
    assert line == f"{LINE} (simulated, not guaranteed)."


def test_compare_says_it(tmp_path, capsys):
    pytest.importorskip("fedbn_flower.study")
    runs = [
        write_run(tmp_path / str(seed), summary_of([0.5, 0.6], privacy=privacy), data="digest", seed=seed)
        for seed, privacy in enumerate((ONE, OTHER))
    ]
    to = tmp_path / "page"
    assert main(["compare", *map(str, runs), "--to", str(to)]) == 0
    assert f"{LINE}." in " ".join(capsys.readouterr().out.split())
    assert f"{LINE}." in (to / "compare.md").read_text()
    assert f"{LINE}." in (to / "compare.html").read_text()


def test_what_failed_has_spent_its_privacy(configured, tmp_path, sweeps_table):
    found = sweeps_table(tmp_path, [], [])
    add_run(found, configured(seed=0), summary_of([0.5], privacy=ONE))
    name = "fedyogi-fedbn-plain-seed1"
    write_run(tmp_path / name, summary_of([0.5], privacy=OTHER), METRICS, seed=1)
    found.add(configured(seed=1), None, "it diverged", name)
    assert found.privacy_together == [f"{LINE}."]
    assert f"\n{LINE}.\n" in (tmp_path / "grid.md").read_text()
    sweep = Sweep.read(tmp_path)
    (group,) = sweep.groups
    assert [[run.config["seed"] for run in runs] for runs in (group.runs, group.failed)] == [[0], [1]]
    assert f"{LINE}." in sweep_page(sweep)


def test_of_failed_runs_those_count_that_had_a_round_whether_or_not_their_cell_has_a_result(
    configured, tmp_path, sweeps_table
):
    read_groups = pytest.importorskip("fedbn_flower.study.compare").read_groups
    sweeps = tmp_path / "a", tmp_path / "b"
    for folder in sweeps:
        found = sweeps_table(folder, [], [])
        name = "fedadam-fedbn-plain-seed0"
        write_run(folder / name, summary_of([0.5], privacy=OTHER), METRICS, strategy="fedadam", seed=0)
        found.add(configured(strategy="fedadam", seed=0), None, "it diverged", name)
        never = folder / "fedavg-fedbn-plain-seed0"
        write_run(never, {}, strategy="fedavg", seed=0)
        found.add(configured(strategy="fedavg", seed=0), None, "every client failed", never.name)
    with pytest.raises(UserError, match="'.*a' is not allowed; expected a sweep of which a run has ended"):
        read_groups(sweeps)
    for folder in sweeps:
        found = sweeps_table(folder, [], [])
        add_run(found, configured(seed=0), summary_of([0.5], privacy=ONE))
        (folder / "grid.csv").write_text(
            "strategy,client,objective,seed,status,folder\n"
            "fedyogi,fedbn,plain,0,ok,fedyogi-fedbn-plain-seed0\n"
            "fedadam,fedbn,plain,0,it diverged,fedadam-fedbn-plain-seed0\n"
            "fedavg,fedbn,plain,0,every client failed,fedavg-fedbn-plain-seed0\n"
        )
    assert f"{LINE}." in sweep_page(Sweep.read(sweeps[0]))
    counted = [[run.config["strategy"] for run in group.with_privacy] for group in read_groups(sweeps)]
    assert counted == [["fedyogi", "fedadam"]] * 2


@pytest.mark.parametrize("reference", ["none", "pooled"])
def test_a_reference_to_a_private_run_is_a_release_of_its_own(configured, caplog, reference):
    config = configured(dp="client", dp_noise=1.0, dp_delta=1e-3, reference=reference)
    assert config.dp == ("client" if reference == "none" else "none")
    line = (
        f"reference: {reference!r} has no dp, so it is itself a release: nothing bounds what its "
        f"model, or a metric "
        "of it, tells of the data that dp=client protects"
    )
    told = [message for message in caplog.messages if message.startswith("reference")]
    assert told == ([] if reference == "none" else [line])
    configured(reference=reference)
    assert len([message for message in caplog.messages if message.startswith("reference")]) == len(told)
