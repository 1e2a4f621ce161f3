"""What holds of whole runs under every notion of privacy: accounted, written, repeated, refused alike."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground.columns import PRIVACY
from fedbn_flower.privacy import keys, ledger
from fedbn_flower.privacy.accounts import Plan, epsilon, local_epsilon, local_noise_for, noise_for
from fedbn_flower.records.events import Observer
from fedbn_flower.results.resume import load_checkpoint
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..records.helpers import rows_of
from . import runs
from .runs import FEW, NOTIONS, Stops, charges, cut, model, resume, run_on, simulated

CLIENTS, EXAMPLES = Plan("poisson", 0.5, 10, 3, 1e-3), Plan("poisson", 240 / 479, 479, 6, 1e-3)
EIGHT = {  # the noise for epsilon 8, and epsilon of three rounds with it
    "client": (lambda: noise_for(8, CLIENTS), lambda z, t: epsilon(z, CLIENTS, t)),
    "local": (lambda: local_noise_for(8, 3, 1e-3), lambda z, t: local_epsilon(z, t, 1e-3)),
    "example": (lambda: noise_for(8, EXAMPLES), lambda z, t: epsilon(z, EXAMPLES, 2 * t)),
}
TOLD = {
    "client": {"notion": "client, central", "adjacency": "add-or-remove-one", "sampling": "poisson"},
    "local": {
        "notion": "client, local", "adjacency": "replace-one", "sampling": "none", "participations": 3,
    },
    "example": {
        "notion": "example, at each client", "adjacency": "example-replaced-by-nothing",
        "sampling": "poisson",
        "accounted": [{"examples": 479, "probability": 240 / 479, "steps": 6}],
    },
}  # fmt: skip

ADAPTIVE = {"dp_clip": "adaptive", "num_clients": 20}
"""With fewer clients the noise on their count would be too much."""


def private(configured, notion, **values):
    return runs.private(configured, notion, **(FEW if notion == "client" else {}) | values)


MORE = {
    "client": "3: the privacy budget is spent at round 3",
    "example": "3, for which the noise .* was found",
}
"""What is expected where a complete run is to go on for more rounds than its noise was found for."""


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_run_with_a_budget(configured, tmp_path, notion):
    config = private(configured, notion, dp_noise=0, dp_epsilon=8, rounds=3)
    assert config.weighting == ("num-examples" if notion == "example" else "uniform")
    found = simulated(config, tmp_path)["privacy"]
    noise_of, epsilon_of = EIGHT[notion]
    assert found["noise"] == noise_of()
    assert 7.9 < found["epsilon"] <= 8 == found["planned-epsilon"]
    told = TOLD[notion] | {"claim": "simulated", "delta": 1e-3, "planned-rounds": 3, "published": 3}
    assert {key: found[key] for key in told} == told
    assert "unit" not in found
    written = [{name: float(row[name]) for name in PRIVACY} for row in rows_of(tmp_path)]
    assert [row["epsilon"] for row in written] == [epsilon_of(found["noise"], t) for t in (1, 2, 3)]
    over = 5 if notion == "client" else 1  # the server's noise is of a sum of five, a client's its own
    assert {(row["noise-std"], row["clip-norm"]) for row in written} == {(found["noise"] / over, 1.0)}
    listed = [0, 1, 2, 3] if notion == "local" else []  # else a round counts as if each trained in it
    assert [charge.get("clients", []) for charge in charges(tmp_path)] == [listed] * 3
    if notion in MORE:
        with pytest.raises(UserError, match=f"^rounds: 9 is not allowed; expected {MORE[notion]}$"):
            simulated(resume(config, tmp_path, rounds=9), tmp_path)


CENTRAL = {"model": "mlp-bn", "num_clients": 4, "fraction_train": 1.0}
GOES = [
    ("client", {"strategy": "fedavg", "client": "fedbn"} | CENTRAL),
    ("client", {"strategy": "feddyn", "client": "fedper+silobn"} | CENTRAL),
    ("local", {"client": "fedrep", "model": "2nn"}),
    ("example", {"objective": "scaffold", "client": "shared", "model": "2nn", "num_clients": 2}),
    ("local", {"mean": "median"}),
    ("local", {"clip_update_norm": 1.0, "min_replies": 2}),
]


@pytest.mark.parametrize(
    ("notion", "chosen"), [*GOES[:3], *(pytest.param(*case, marks=pytest.mark.slow) for case in GOES[3:])]
)
def test_rules_clients_and_objectives_that_can(configured, tmp_path, notion, chosen):
    both = {"feddyn", "scaffold"} & {*chosen.values()}
    chosen |= dict.fromkeys(("strategy", "objective"), *both) if both else {}
    summary = simulated(private(configured, notion, rounds=2, **chosen), tmp_path)
    assert summary["privacy"]["published"] == 2


@pytest.mark.parametrize("notion", ["local", "example"])
def test_with_a_secret_key_noise_is_new_each_time_and_kept_nowhere(configured, tmp_path, notion):
    config = private(configured, notion, dp_seed=-1, rounds=1)
    summaries = [simulated(config, tmp_path / name) for name in "ab"]
    assert model(tmp_path / "a") != model(tmp_path / "b")
    assert summaries[0]["privacy"]["claim"] == "guarantee"
    assert not list(tmp_path.rglob(keys.NAME))


@pytest.mark.parametrize(
    ("notion", "values"),
    [
        ("client", {"dp_clip": "0.5", "dp_seed": -1}),
        pytest.param("client", ADAPTIVE, marks=pytest.mark.slow),
        pytest.param("client", {"dp_sampling": "cyclic", "dp_seed": -1}, marks=pytest.mark.slow),
        pytest.param("client", {**ADAPTIVE, "dp_secure_noise": True, "dp_seed": -1}, marks=pytest.mark.slow),
        ("local", {"fraction_train": 0.5}),
        pytest.param("example", {}, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_has_the_bits_and_the_ledger_of_one_that_never_stopped(
    configured, tmp_path, notion, values, monkeypatch
):
    monkeypatch.setattr(keys.secrets, "token_bytes", lambda count: bytes(range(count)))
    more = {"dp_noise": 0.9} if notion == "client" else {}
    config = private(configured, notion, rounds=4, checkpoint_every=2, **more, **values)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    simulated(config, whole)
    cut(config, stopped, 3)
    assert [line["round"] for line in charges(stopped)] == [1, 2, 3]  # the checkpoint is of round 2
    monkeypatch.setattr(keys.secrets, "token_bytes", bytes)  # another key, were one made
    simulated(resume(config, stopped), stopped)
    assert model(stopped) == model(whole)
    assert (stopped / ledger.NAME).read_text() == (whole / ledger.NAME).read_text()
    columns = [[row[name] for name in PRIVACY] for row in rows_of(whole)]
    assert [[row[name] for name in PRIVACY] for row in rows_of(stopped)] == columns


def at_sites(config, folder, *observers):
    """Run with clients whose memory is not in the run's folder."""
    grid = InlineGrid(config.num_clients, {**config.to_user_config(), "resume": ""})
    grid.client_memory = None
    checkpoint = load_checkpoint(config, clients_here=False) if config.resume else None
    return run_on(grid, config, folder, observers, checkpoint)


@pytest.mark.parametrize("notion", ["client", "example", pytest.param("local", marks=pytest.mark.slow)])
def test_a_round_that_cannot_be_repeated_is_charged_again_and_a_spent_budget_ends_the_run(
    configured, tmp_path, caplog, notion
):
    """SuperNodes' memories may have moved on, and a client's secret noise is kept nowhere.

    Of a budget for four rounds the repeated one takes the last, though more are asked for.
    """
    run, values, rounds = (at_sites, {}, 9) if notion == "client" else (simulated, {"dp_seed": -1}, 4)
    budget = {"dp_noise": 0, "dp_epsilon": 8, "rounds": 4, "checkpoint_every": 2}
    config, folder = private(configured, notion, **budget, **values), tmp_path / "run"
    if notion == "client":
        with pytest.raises(KeyboardInterrupt):
            at_sites(config, folder, Stops(3))
    else:
        cut(config, folder, 3)
    with caplog.at_level("WARNING", "flwr"):
        summary = run(resume(config, folder, rounds=rounds), folder)
    assert [(c["round"], c["attempt"]) for c in charges(folder)] == [(1, 1), (2, 1), (3, 1), (3, 2)]
    said = [one.getMessage() for one in caplog.records if "budget" in one.getMessage()]
    assert said == [f"privacy: budget spent at round 3 of {rounds}"]
    assert (summary["rounds"], summary["stopped"]) == (3, "budget")
    assert 7.9 < summary["privacy"]["epsilon"] == charges(folder)[-1]["epsilon"] <= 8
    if notion == "client":
        assert summary["mean"]["accuracy"] == float(rows_of(folder)[-1]["accuracy"])


class Dies(Observer):
    """Ends a run in a phase of a round, once everybody has answered."""

    def __init__(self, within, phase="evaluate"):
        self.within = (within, phase)

    def on_answer(self, server_round, phase, done, total):
        if (server_round, phase) == self.within and done == total:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(("notion", "phase"), [("client", "evaluate"), ("local", "train")])
def test_repeated_rounds_cost_nothing_also_if_the_budget_is_spent_in_them(
    configured, tmp_path, notion, phase
):
    """All four rounds are charged when it dies, and the checkpoint is of round 2.

    So rounds 3 and 4 are repeated, to the model of the run that was not killed.
    """
    budget = {"dp_noise": 0, "dp_epsilon": 8, "rounds": 4, "checkpoint_every": 2}
    config = private(configured, notion, **budget)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    simulated(config, whole)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), stopped, None, [Dies(4, phase)])
    assert [line["round"] for line in charges(stopped)] == [1, 2, 3, 4]
    summary = simulated(resume(config, stopped), stopped)
    assert summary["rounds"] == 4
    assert len(charges(stopped)) == 4
    assert model(stopped) == model(whole)


@pytest.mark.parametrize("notion", ["local", "example"])
def test_a_round_is_charged_before_anybody_is_asked(configured, tmp_path, monkeypatch, notion):
    asked = []
    monkeypatch.setattr(
        "fedbn_flower.server.federation.Exchange._carried",
        lambda self, phase, messages: asked.append(len(charges(tmp_path))) or [],
    )
    with pytest.raises(Exception, match=r".*"):
        simulated(private(configured, notion), tmp_path)
    assert asked[0] == 1
