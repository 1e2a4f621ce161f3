"""A clip that adapts under noise in shares: where it goes, under how much noise, and what clients refuse."""

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.privacy.accounts import Plan
from fedbn_flower.privacy.floors import Floors, Refused
from fedbn_flower.privacy.keys import Key
from fedbn_flower.privacy.noise import discrete_gaussian
from fedbn_flower.results.report import write_report
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.secagg.conflicts import LEAST_CLIP, MOST_CLIP
from fedbn_flower.secagg.noise import NoiseShares, sum_epsilon
from fedbn_flower.secagg.private import check_noise, noise_in
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.privacy import UNSAID
from fedbn_flower.strategies.messages.npy import encoded, viewed

from .grids import Lossy, Rounds

KEYS = {
    "dp": "client", "dp_noise": 0.3, "dp_delta": 1e-3, "dp_clip": "adaptive", "secagg": "plain", "dp_seed": 3,
    "num_clients": 6, "partition": "iid", "rounds": 4, "strategy": "fedavg", "client": "shared",
    "model": "linear",
}  # fmt: skip
ENTRIES = 650
NORMS = [0.02, 0.05, 0.094, 0.096, 0.3, 2.0]
"""Of the updates of six clients: half of them, or nearly, are within each clip of these rounds."""
STEPS = 2**20
COUNT_NOISE = 6 / 20


@pytest.fixture
def settings(configured, monkeypatch):
    """A configuration of clients whose updates have the lengths of `NORMS`."""
    from clients import FedAvgClient

    fit = FedAvgClient.fit

    def moved(self, parameters, config):
        _, *others = fit(self, parameters, config)
        received, client = parameters.by_name(), self.task.seed[-1]
        arrays = [np.array(received[name]) for name in self.shared_names]
        arrays[0].flat[client] += NORMS[client]
        return arrays, *others

    monkeypatch.setattr(FedAvgClient, "fit", moved)
    return lambda **values: configured(**{**KEYS, **values})


def clips(rounds, answered, seed=3, counted=4):
    """The clip of each round by the paper's formula; ``answered`` are the clients of a sum, by round."""
    found, half = [0.1], math.floor(STEPS * math.sqrt(counted) / (2 * COUNT_NOISE))
    for t in range(1, rounds):
        clients, clip = answered(t), found[-1]
        if len(clients) < counted:
            found.append(clip)
            continue
        keys = [Key.of_seed(seed).of_client(i).numbers(t, 1, "noise") for i in clients]
        noise = sum(int(discrete_gaussian(key.words, ENTRIES + 1)[-1]) for key in keys) / (2 * half)
        bits = sum(0.5 if NORMS[i] <= clip else -0.5 for i in clients)
        found.append(clip * math.exp(-0.2 * ((bits + noise) / 6)))
    return found


class LossyByRound(Lossy):
    """Loses one client's training in round 2, and three in round 3: then there are too few."""

    def __init__(self, config):
        super().__init__(config, changed=self.lose)

    def lose(self, step, message, reply):
        if step == "train":
            number = message.content["config"]["server-round"]
            self.lost = {"train": {2: (5,), 3: (0, 1, 2)}.get(number, ())}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["plain", "on"])
def test_the_clip_of_each_round_is_that_of_the_formula(settings, tmp_path, mode):
    """Whoever drops out counts neither within nor beyond; without a result the clip stays.

    The noise of each round is that of its clip, over the mean of who is left: of 644 numbers, known to 3 %.
    """
    config = settings(secagg=mode, rounds=5)
    federation, rounds = Federation(config), Rounds()
    federation.privacy.begin(tmp_path, 0, False)
    federation.run(grid := LossyByRound(config), [rounds])
    told = {
        message.content["config"]["server-round"]: message.content["config"]["secagg-clip"]
        for step, _, message, _ in grid.carried
        if step == "train"
    }
    lost = {2: (5,), 3: (0, 1, 2)}
    expected = clips(6, lambda t: [i for i in range(6) if i not in lost.get(t, ())])
    assert list(told.values()) == pytest.approx(expected[:5], rel=1e-12)
    assert told[4] == told[3] != told[2]
    models = [viewed(next(iter(result.arrays.values()))).ravel() for result in rounds.results]
    of_update = (0.3**-2 - (2 * COUNT_NOISE) ** -2) ** -0.5
    for t, count in ((2, 5), (4, 6), (5, 6)):
        noise = (models[t - 1] - models[t - 2])[len(NORMS) :].std()
        assert noise == pytest.approx(of_update * expected[t - 1] * math.sqrt(count / 4) / count, rel=0.08)
    assert (models[1] == models[2]).all()
    assert federation.privacy.clip == pytest.approx(expected[5], rel=1e-12)
    terms, *charges = map(json.loads, (tmp_path / "privacy.jsonl").read_text().splitlines())
    assert (terms["adaptive-clip"], terms["count-noise"]) == (True, COUNT_NOISE)
    assert [charge["clip"] for charge in charges] == list(told.values())


@pytest.mark.slow
def test_the_noise_of_updates_and_of_their_count():
    """Of the 4 who are honest of the fewest 7: known to 1 % and 6 % from 150 sums."""
    of_count, of_update = 10 / 20, (0.6**-2 - 1.0**-2) ** -0.5
    shares = NoiseShares.plan(0.6, 0.7, 10, 7, 50, 0.5, of_count)
    words, kind = Key.of_seed(1).numbers(1, 1, "noise").words, f"i{shares.grid.bits // 8}"
    drawn = np.array([shares.draw(words).view(kind).astype(np.int64) for _ in range(600)])
    sums = drawn.reshape(150, 4, 51).sum(1)
    assert sums[:, :50].std() * shares.grid.step == pytest.approx(of_update * 0.7, rel=0.02)
    assert sums[:, 50].std() / (2 * shares.half) == pytest.approx(of_count, rel=0.18)
    assert abs(np.corrcoef(sums[:, 0], sums[:, 50])[0, 1]) < 0.25
    plan = Plan("all", 1.0, 10, 5, 1e-5)
    joint = sum_epsilon(STEPS, 4, STEPS * 2 / 0.6, 51, plan)
    assert 0.99 * joint < shares.epsilon(plan) <= joint * (1 + 1e-9)


def test_whatever_is_summed_has_room_and_a_fine_count():
    """Few survivors of many clients, and a noise that leaves the updates little."""
    for clients, cohort, noise in ((65535, 20, 1.9), (65535, 65535, 5.0), (1000, 11, 1.0999), (3, 3, 0.01)):
        survivors = cohort - cohort // 3
        shares = NoiseShares.plan(noise, 1.0, clients, survivors, 1000, 1.0, cohort / 20)
        most = 12 * shares.deviation * math.sqrt(clients)
        assert clients * max(shares.grid.bound, shares.half) + most < 2 ** (shares.grid.bits - 1)
        found = shares.deviation * math.sqrt(shares.counted) / (2 * shares.half)
        assert cohort / 20 <= found <= 1.01 * cohort / 20
        assert noise <= shares.noise * (1 + 1e-12) <= 1.01 * noise


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_clips(settings, tmp_path):
    """Three rounds at once, and two of them before a third."""
    for name, rounds in (("whole", (3,)), ("parts", (2, 3))):
        for count in rounds:
            folder = tmp_path / name
            resumed = {"resume": str(folder)} if count != rounds[0] else {}
            simulate(Federation(settings(rounds=count, **resumed)), folder, None)
    for name in ("model.safetensors", "privacy.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    terms, *charges = map(json.loads, (tmp_path / "whole" / "privacy.jsonl").read_text().splitlines())
    assert (terms["adaptive-clip"], terms["count-noise"]) == (True, COUNT_NOISE)
    expected = clips(3, lambda _: range(6))
    assert [charge["clip"] for charge in charges] == pytest.approx(expected, rel=1e-12)
    with (tmp_path / "whole" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["clip-norm"]]
    assert [float(row["clip-norm"]) for row in rows] == pytest.approx(expected, rel=1e-6)
    of_update = (0.3**-2 - (2 * COUNT_NOISE) ** -2) ** -0.5
    stated = [float(row["noise-std"]) for row in rows]
    assert stated == pytest.approx([of_update * clip / 4 for clip in expected], rel=1e-3)
    found = json.loads((tmp_path / "whole" / "summary.json").read_text())["privacy"]
    assert (found["noise"], found["adaptive-clip"], found["count-noise"]) == (0.3, True, COUNT_NOISE)
    joint = sum_epsilon(STEPS, 4, STEPS * 2 / 0.3, 651, Plan("all", 1.0, 6, 3, 1e-3))
    assert found["epsilon"] == charges[-1]["epsilon"] == pytest.approx(joint, rel=1e-5)
    assert "followed the median of the lengths" in write_report(tmp_path / "whole").read_text()


def test_a_client_adds_its_share_at_the_least_and_the_greatest_clip(settings):
    """To these a clip that adapts is held, so a server asks for them."""
    config, update = settings(), SimpleNamespace(records={})
    for clip in (LEAST_CLIP, MOST_CLIP):
        check_noise(config, SimpleNamespace(**noise_in(config), clip=clip), update)
    for clip in (LEAST_CLIP / 2, 2 * MOST_CLIP, math.inf):
        with pytest.raises(Refused, match="it is to be from"):
            check_noise(config, SimpleNamespace(**noise_in(config), clip=clip), update)


@pytest.mark.parametrize(
    ("name", "value", "line", "values"),
    [
        ("secagg-count-noise", 0.01, "the server asks for count-noise 0.01, and the run has 0.3", {}),
        ("secagg-count-noise", 0.0, "the server asks for count-noise 0.0", {}),
        ("secagg-noise", 0.2, "the server asks for noise 0.2", {}),
        ("secagg-survivors", 50, "the server asks for survivors", {"dp_clip": 0.5}),
        ("secagg-honest", 0.9, "the server asks for honest", {"dp_clip": 0.5}),
        ("secagg-clip", 9.0, "the server asks for clip", {"dp_clip": 0.5}),
        ("secagg-clip", 1e-40, "the server asks for clip 1e-40, and it is to be from 1e-30 to 1e.30", {}),
        ("secagg-clip", math.inf, UNSAID, {}),
        ("secagg-clip", math.nan, UNSAID, {}),
        ("secagg-clip", -1.0, UNSAID, {}),
        ("secagg-count-noise", 0.3, "the server asks for count-noise 0.3", {"dp_clip": 0.5}),
        (
            "secagg-count-noise", 0.3, "the server asks for a count of updates",
            {"dp": "none", "dp_noise": 0.0, "dp_delta": 0.0, "dp_clip": 1.0, "dp_seed": -1,
             "clip_update_norm": 1.0},
        ),
    ],
)  # fmt: skip
def test_a_server_that_asks_for_other_noise_is_refused(settings, tmp_path, name, value, line, values):
    """The configuration of clients decides. A clip that is none costs the answer too."""

    def changed(step, message, reply):
        if reply is None and step == "train":
            message.content["config"][name] = value

    config = settings(rounds=1, **values)
    federation = Federation(config)
    if federation.privacy:
        federation.privacy.begin(tmp_path, 0, False)
    with pytest.raises(RunFailed, match=line):
        federation.run(Lossy(config, changed=changed), [])


def test_a_count_that_clients_cannot_have_costs_the_round_its_result(settings, tmp_path, caplog):
    """Six halves and twelve deviations of the noise: no more moves the clip."""

    def changed(step, message, reply):
        if reply is not None and step == "train":
            entry = reply.content["compressed"]
            vector = viewed(entry["vector"]).copy()
            vector[ENTRIES] = 2 ** (8 * vector.itemsize - 4)
            entry["vector"] = encoded(vector)

    federation = Federation(config := settings(rounds=1))
    federation.privacy.begin(tmp_path, 0, False)
    with pytest.raises(RunFailed, match="it is more than 6 clients can have sent"):
        federation.run(Lossy(config, changed=changed), [])
    assert federation.privacy.clip == 0.1


def test_a_budget_is_kept_with_both(settings):
    """The noise is found for updates and count together; for too few clients it is refused."""
    privacy = Federation(settings(num_clients=40, dp_noise=0.0, dp_epsilon=20.0)).privacy
    assert 19.9 < privacy.epsilon(4) <= 20.0
    with pytest.raises(UserError, match="dp-clip: 'adaptive' is not allowed; .*more than"):
        Federation(settings(dp_noise=0.0, dp_epsilon=1.0))


@pytest.mark.parametrize("bound", [{"dp-max-clip": 5.0}, {"dp-min-noise": 0.1}])
def test_a_site_with_bounds_of_its_own_takes_no_part(settings, bound):
    """They bind whatever the clip of a round is: such a site wants noise that it adds alone."""
    with pytest.raises(Refused, match="dp: 'client' is not allowed at this site"):
        Floors.checked(bound, settings())


def test_too_few_clients_for_the_noise_are_refused(settings):
    """Three clients, whose count has noise 0.15: z has to be below 0.3."""
    line = "dp-clip: 'adaptive' is not allowed; .*with noise 0.3 it needs more than 3 clients a round"
    with pytest.raises(UserError, match=line):
        Federation(settings(num_clients=3))
    Federation(settings(num_clients=3, dp_noise=0.29))


def test_a_clip_stays_a_number_on_which_a_grid_can_be(settings):
    """A client may send anything, so the count too; the clip is 1e-30 at least."""
    privacy = Federation(settings()).privacy
    for _ in range(100):
        privacy.adapt(100.0)
    assert privacy.clip == 1e-30
