"""Rules against their papers' algorithms, written out in float64; in some rounds clients are missing."""

from dataclasses import dataclass
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.serverapp.exception import AggregationError
from scipy.optimize import minimize

from strategies import STRATEGIES, FedAdagrad, FedAdam, FedAMS, FedAvg, FedExP, FedYogi, RuleState

from ..helpers import OF_MODELS, CannedGrid, ndarrays, one_round, record, train, train_reply

SIZES = np.array([3, 1, 4, 1])
WHO = [[0, 1, 2, 3], [0, 2, 3], [1, 2], [0, 3], [3]]
RNG = np.random.default_rng(11)
DELTAS, LOSSES = RNG.normal(scale=0.3, size=(5, 4, 6)), RNG.uniform(0.1, 2, size=(5, 4))
STEPS = RNG.integers(1, 9, size=(5, 4))
COUNTS = np.array([[3, 0, 0], [0, 1, 0], [2, 1, 1], [0, 0, 1]], float)
"""Examples of each class at each client."""


@dataclass
class Answers:
    """Those of a round: differences (clients, 6), and by client the examples, losses before and steps."""

    who: list[int]
    d: np.ndarray
    n: np.ndarray
    loss: np.ndarray
    steps: np.ndarray

    @property
    def mean(self):
        return np.average(self.d, axis=0, weights=self.n)


ROUNDS = [
    Answers(who, DELTAS[t][who], SIZES[who], LOSSES[t][who], STEPS[t][who]) for t, who in enumerate(WHO)
]


# ---- the papers' algorithms: the model after each round -------------------------------------------------


def fedavg(x, eta=1.0, momentum=0.0):
    v = 0.0
    for a in ROUNDS:
        v = momentum * v + a.mean
        x = x + eta * v
        yield x


def adaptive(x, rule, b1=0.9, b2=0.99, eta=0.01, tau=1e-3, corrected=True, v_init=0.0):
    m, v = np.zeros_like(x), np.full_like(x, v_init)
    for t, d in enumerate((a.mean for a in ROUNDS), start=1):
        m = b1 * m + (1 - b1) * d
        if rule == "adagrad":
            v = v + d**2
        elif rule == "yogi":
            v = v - (1 - b2) * d**2 * np.sign(v - d**2)
        else:
            v = b2 * v + (1 - b2) * d**2
        m_hat, v_hat = (m / (1 - b1**t), v / (1 - b2**t)) if corrected else (m, v)
        x = x + eta * m_hat / (np.sqrt(v_hat) + tau)
        yield x


def fedams(x, epsilon):
    m, v, greatest = np.zeros_like(x), np.zeros_like(x), np.full_like(x, epsilon)
    for a in ROUNDS:
        m = 0.9 * m + 0.1 * a.mean
        v = 0.99 * v + 0.01 * a.mean**2
        greatest = np.max([greatest, v], axis=0)
        x = x + 0.05 * m / np.sqrt(greatest)
        yield x


def fedexp(x, epsilon):
    """Equation 7; D is the mean of the differences."""
    for a in ROUNDS:
        squares = np.average((a.d**2).sum(axis=1), weights=a.n)
        x = x + max(1.0, squares / (2 * (a.mean @ a.mean + epsilon))) * a.mean
        yield x


def qfedavg(x, q, lipschitz=4.0):
    """Dw_k = L (w - w_k), D_k = F^q Dw_k, h_k = q F^(q-1) |Dw_k|^2 + L F^q; sizes play no part."""
    for a in ROUNDS:
        dw = -lipschitz * a.d
        h = q * a.loss ** (q - 1) * (dw**2).sum(axis=1) + lipschitz * a.loss**q
        x = x - (a.loss**q @ dw) / h.sum()
        yield x


def weighted(x, weights_of):
    for a in ROUNDS:
        weights = weights_of(a)
        x = x + (weights / weights.sum() @ a.d if weights.any() else 0)
        yield x


def tilted(a, t):
    return a.n * np.exp(t * (a.loss - a.loss.max()))


def feddisco(a, weight, b):
    """The authors' lines; a lost answer leaves the weights of the others in their ratio."""
    overall = COUNTS.sum(0) / COUNTS.sum()
    distance = np.linalg.norm(COUNTS / COUNTS.sum(1, keepdims=True) - overall, axis=1)
    return np.maximum(SIZES / SIZES.sum() - weight * distance + b, 0)[a.who]


def afl(x, eta, gamma=0.3):
    """The projection on the simplex as a quadratic programme; weights are those before the round's ascent."""
    weights = np.full(4, 0.25)
    for a in ROUNDS:
        used = weights[a.who]
        x = x + (eta * (used / used.sum()) @ a.d if used.any() else 0)
        raised = weights.copy()
        raised[a.who] += gamma * 4 / len(a.who) * a.loss
        weights = minimize(
            lambda v, raised=raised: ((v - raised) ** 2).sum(), weights, bounds=[(0, 1)] * 4, tol=1e-14,
            constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
        ).x  # fmt: skip
        yield x


def fednova(x):
    for a in ROUNDS:
        p = a.n / a.n.sum()
        x = x + (p @ a.steps) * (p / a.steps) @ a.d
        yield x


ADAPTIVE = {"eta": 0.01, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}
TILTED = {
    f"term, {t}": (partial(weighted, weights_of=partial(tilted, t=t)), {"tilt": t}) for t in (-2.0, 20.0)
}
CASES = {
    "fedavg": (fedavg, {}),
    "fedavg, momentum": (partial(fedavg, eta=0.3, momentum=0.9), {"eta": 0.3, "momentum": 0.9}),
    "fedavgm": (
        partial(fedavg, eta=0.3, momentum=0.8), {"server_learning_rate": 0.3, "server_momentum": 0.8},
    ),
    **{
        f"fed{rule}, corrected {corrected}, v {v}": (
            partial(adaptive, rule=rule, corrected=corrected, v_init=v),
            {"bias_correction": corrected, "v_init": v, **ADAPTIVE},
        )
        for rule, corrected, v in product(("yogi", "adam"), (True, False), (0.0, 1e-6))
        if corrected != bool(v)
    },
    "fedadagrad": (
        partial(adaptive, rule="adagrad", b1=0.9, corrected=False), {"eta": 0.01, "beta_1": 0.9, "tau": 1e-3},
    ),
    **{
        f"fedams, {e}": (
            partial(fedams, epsilon=e), {"eta": 0.05, "beta_1": 0.9, "beta_2": 0.99, "epsilon": e},
        )
        for e in (1e-8, 0.5)
    },
    **{f"fedexp, {e}": (partial(fedexp, epsilon=e), {"epsilon": e}) for e in (0.0, 0.5)},
    **{
        f"qfedavg, {q}": (partial(qfedavg, q=q), {"client_learning_rate": 0.25, "q": q})
        for q in (0.0, 0.1, 5.0)
    },
    **TILTED,
    **{
        f"afl, {eta}": (
            partial(afl, eta=eta), {"eta": eta, "gamma": 0.3, "num_clients": 4, "ask_partitions": True},
        )
        for eta in (1.0, 0.5)
    },
    **{
        f"feddisco, {a}, {b}": (
            partial(weighted, weights_of=partial(feddisco, weight=a, b=b)),
            {"a": a, "b": b, "ask_partitions": True},
        )
        for a, b in ((0.5, 0.5), (0.2, 0.1))
    },
    "fednova": (fednova, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_five_rounds_by_the_paper(case):
    """The model that counts is FedExP's mean of the last two, of all others the one that is sent next."""
    written, settings = CASES[case]
    strategy = STRATEGIES[case.partition(",")[0]](**settings)
    if case.startswith("feddisco"):
        strategy.rule_state.vectors["class-counts"] = COUNTS.copy()
    x = RNG.normal(size=6).astype(np.float32)
    for t, expected in enumerate(written(x.astype(float))):

        def client(message, i, x=x, t=t):
            if i not in WHO[t]:
                return None
            loss, steps = float(LOSSES[t, i]), int(STEPS[t, i])
            w = (x + DELTAS[t, i]).astype(np.float32)
            return train_reply(message, {"w": w}, int(SIZES[i]), **{"start-loss": loss, "local-steps": steps})

        updated, _ = train(strategy, {"w": x}, CannedGrid(4, client), t + 1)
        before, x = x, ndarrays(updated)["w"]
        np.testing.assert_allclose(x, expected, atol=2e-5, err_msg=f"round {t + 1}")
        assert x.dtype == np.float32
        counted = (before + x) / 2 if case.startswith("fedexp") else x
        np.testing.assert_allclose(ndarrays(strategy.counted(updated))["w"], counted, atol=1e-6)


# ---- laws of all rules ----------------------------------------------------------------------------------


def rounds_of(strategy, numbers, x):
    for t in numbers:
        grid = CannedGrid(
            4, lambda m, i, x=x, t=t: train_reply(m, {"w": x + np.float32(DELTAS[t, i])}, int(SIZES[i]))
        )
        x = ndarrays(train(strategy, {"w": x}, grid, t + 1)[0])["w"]
    return x


@pytest.mark.parametrize("rule", OF_MODELS)
def test_a_rule_goes_on_from_its_saved_state_to_the_bit(rule):
    x = np.ones(6, np.float32)
    whole, first, second = (OF_MODELS[rule]() for _ in range(3))
    middle = rounds_of(first, range(2), x)
    saved = first.rule_state
    second.rule_state = RuleState(saved.updates, {n: v.copy() for n, v in saved.vectors.items()})
    assert rounds_of(second, range(2, 4), middle).tobytes() == rounds_of(whole, range(4), x).tobytes()


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("extras_like_parameters", "fedsmoo scaffold scaffold-momentum feddc fedadmm fedcm mimelite mime"),
        ("weighs_alike", "qfedavg feddyn fedsmoo scaffold feddc fedadmm fedcm mimelite mime fedsat"),
        (
            "reads_extras_anywhere",
            "fednova fedexp qfedavg term fedsmoo scaffold scaffold-momentum feddc fedadmm fedcm mimelite "
            "mime fedsat",
        ),
        ("goes_without_model", "fedproto"),
        ("keeps_models", "ifca cfl fedamp fedap fedpac"),
    ],
)
def test_which_rules_say_so_of_themselves(flag, names):
    assert [name for name, rule in STRATEGIES.items() if getattr(rule, flag)] == names.split()


# ---- FedExP, and steps that spoil the model -----------------------------------------------------------


def a_round(strategy, deltas, names=("w",)):
    """The model after a round from 0, in which client i of one example moves each entry by ``deltas[i]``."""
    models = [dict.fromkeys(names, delta.astype(np.float32)) for delta in deltas]
    return one_round(strategy, dict.fromkeys(names, np.zeros(6, np.float32)), models, [1] * len(deltas))["w"]


def test_clipped_updates_are_clipped_in_the_squares_too():
    """Two of norm 3 and 5, clipped to 1: D of opposite ones is 0.1, so eta is 1 / (2 0.01) = 50."""
    away = np.eye(6)
    deltas = np.array([3 * away[0], 5 * (0.98**0.5 * away[1] + 0.02**0.5 * away[0])])
    sent = a_round(FedExP(epsilon=0.0, clip_update_norm=1.0), deltas)
    mean = (away[0] + 0.98**0.5 * away[1] + 0.02**0.5 * away[0]) / 2
    np.testing.assert_allclose(sent, max(1, 0.5 / (mean @ mean)) * mean, rtol=1e-5)


def test_a_tied_weight_counts_once():
    deltas = np.random.default_rng(2).normal(size=(3, 6))
    two = a_round(FedExP(tied=[("v", "w")]), deltas, ("v", "w"))
    np.testing.assert_allclose(two, a_round(FedExP(), deltas), rtol=1e-5)


def test_without_an_update_the_step_is_none():
    np.testing.assert_array_equal(a_round(FedExP(epsilon=0.0), np.zeros((2, 6))), 0)


def test_before_the_first_round_the_model_counts_as_it_is():
    model = record({"w": np.ones(3, np.float32)})
    assert FedExP().counted(model) is model
    assert FedAvg().counted(model) is model


def model(value, dtype=np.float32):
    return {"a": np.full(3, value, dtype), "b.weight": np.full((2, 2), value, dtype)}


@pytest.mark.parametrize(
    ("dtype", "fits", "too_large"),
    [(np.float16, 6e4, 7e4), (np.float32, 3e38, 4e38), (np.float64, 1e308, np.inf)],
)
def test_what_the_entrys_own_dtype_cannot_hold_is_not_finite(dtype, fits, too_large):
    """The model is 0, its clients' 1: the next one is eta."""
    updated = one_round(FedAvg(eta=fits), model(0, dtype), [model(1, dtype)] * 2, [1, 1])
    np.testing.assert_allclose(updated["b.weight"], dtype(fits))
    with pytest.raises(AggregationError, match="round 4, train: Spoilt diverged: its step makes a not"):
        one_round(Spoilt(times=too_large), model(0, dtype), [model(1, dtype)] * 2, [1, 1], 4)


class Spoilt(FedAvg):
    def __init__(self, times):
        super().__init__()
        self.times = times

    def server_step(self, delta, state, round):
        return (delta.astype(float) * self.times).astype(delta.dtype)


def test_the_entry_that_is_spoilt_is_named():
    class Second(FedAvg):
        def server_step(self, delta, state, round):
            delta[4] = np.nan
            return delta

    with pytest.raises(AggregationError, match=r"its step makes b\.weight not finite"):
        one_round(Second(), model(0), [model(1)] * 2, [1, 1])


# ---- updates of each parameter by its own count -------------------------------------------------------


def stepped_later(rule, deltas, late, since):
    """The model's way under a rule: of ``deltas``, (rounds, n), those of ``late`` count from a round on."""
    state, way = RuleState(), np.zeros(deltas.shape[1])
    for t, delta in enumerate(deltas, start=1):
        if t == since:
            state.new = late
        stepped = np.ones_like(late) if t >= since else ~late
        way[stepped] += rule.server_step(delta[stepped].copy(), state, SimpleNamespace(update=t))
        state.updates += 1
    return way


@pytest.mark.parametrize("since", [2, 10, 21])
def test_parameters_that_are_stepped_later_count_their_own_updates_as_in_torch(since):
    """torch.optim.Adam counts the steps of each parameter; a common t gave 0.74 and 0.475 of the first."""
    deltas = np.random.default_rng(3).normal(scale=0.1, size=(20, 6))
    late = np.array([False, True, False, True, True, False])
    old, new = (torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    adam = torch.optim.Adam([old, new], lr=0.01, betas=(0.9, 0.99), eps=1e-3, maximize=True)
    for t, delta in enumerate(deltas, start=1):
        old.grad = torch.from_numpy(delta[~late])
        new.grad = torch.from_numpy(delta[late]) if t >= since else None
        adam.step()
    way = stepped_later(FedAdam(eta=0.01, beta_1=0.9, beta_2=0.99, tau=1e-3), deltas, late, since)
    np.testing.assert_allclose(way[~late], old.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(way[late], new.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("cls", [FedAdagrad, FedYogi, FedAdam])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_those_that_were_there_keep_their_bits(cls, dtype):
    deltas = np.random.default_rng(4).normal(scale=0.1, size=(9, 5)).astype(dtype)
    late = np.array([True, False, False, True, False])
    none = np.zeros(3, bool)
    way = stepped_later(cls(bias_correction=True), deltas, late, 4)
    assert (
        way[~late].tobytes() == stepped_later(cls(bias_correction=True), deltas[:, ~late], none, 99).tobytes()
    )


def test_a_state_of_an_older_checkpoint_counts_as_it_did():
    """Its moments are of all parameters already, and nothing says since when: the run's t is left."""
    state = RuleState(updates=5, vectors={"m": np.ones(2), "v": np.ones(2)}, new=np.array([False, True]))
    state.vector("m", like=np.ones(2))
    assert state.count(6) == 6


def test_parameters_that_are_stepped_later_begin_at_eps():
    deltas, late = np.full((5, 2), 0.5), np.array([False, True])
    way = stepped_later(FedAMS(eta=0.1), deltas, late, 5)
    assert way[1] == pytest.approx(0.1), "a first step, whichever round it is"
