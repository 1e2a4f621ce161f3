"""Flower's differential-privacy wrappers around our strategies: what they do, and what they cannot."""

from itertools import cycle
from types import SimpleNamespace

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.supercore.privacy_accounting import SamplingMethod

from strategies import FedAvg, FedDyn, FedYogi, Scaffold, check_wrapper

from .helpers import MODEL, OF_MODELS, CannedGrid, moved, ndarrays, train, train_reply

CLIENTS = 2
WRAPPERS = {
    "server-side fixed": lambda rule, norm, noise=0.0: flower.DifferentialPrivacyServerSideFixedClipping(
        rule, noise, norm, CLIENTS
    ),
    "server-side adaptive": lambda rule, norm: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        rule, 0.0, CLIENTS, initial_clipping_norm=norm
    ),
    "client-side fixed": lambda rule, norm: flower.DifferentialPrivacyClientSideFixedClipping(
        rule, 0.0, norm, CLIENTS
    ),
    "client-side adaptive": lambda rule, norm: flower.DifferentialPrivacyClientSideAdaptiveClipping(
        rule, 0.0, CLIENTS, initial_clipping_norm=norm
    ),
}
MODS = {"client-side fixed": fixedclipping_mod, "client-side adaptive": adaptiveclipping_mod}


def rounds(strategy, start, models, mod=None, count=1):
    """The model after each round, in which client i answers with ``models[i]``."""

    def client(message, i):
        answer = lambda m, _: train_reply(m, models[i])  # noqa: E731
        if mod is None:
            return answer(message, None)
        return mod(message, Context(1, 2 + i, {}, RecordDict(), {}), answer)

    arrays, found = start, []
    for t in range(1, count + 1):
        grid = CannedGrid(len(models), client)
        updated, _ = train(strategy, arrays, grid, t)
        arrays = arrays if updated is None else ndarrays(updated)
        found.append(arrays)
    return found


WRAPPED = sorted(OF_MODELS.keys() - {"scaffold", "scaffold-momentum", "feddc", "fedcm", "fedsmoo"})


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("wrapper", "rule"),
    [*((wrapper, "fedyogi") for wrapper in WRAPPERS), *zip(cycle(WRAPPERS), WRAPPED, strict=False)],
)
def test_without_noise_and_with_a_huge_norm_nothing_changes(wrapper, rule):
    """BatchNorm's statistics and its integer counter included."""
    models = [moved(0.5), moved(0.25, batches=24)]
    plain = rounds(OF_MODELS[rule](), MODEL, models, count=3)
    wrapped = rounds(WRAPPERS[wrapper](OF_MODELS[rule](), 1e9), MODEL, models, MODS.get(wrapper), count=3)
    for expected, got in zip(plain, wrapped, strict=True):
        assert list(got) == list(MODEL)
        for name, array in expected.items():
            assert got[name].dtype == array.dtype
            np.testing.assert_allclose(got[name], array, rtol=1e-5)


START = {"v": np.zeros(1, np.float32), "w": np.zeros(1, np.float32)}
UPDATES = [
    {n: np.full(1, v, np.float32) for n, v in zip("vw", pair, strict=True)} for pair in ((3, 4), (0.3, 0.4))
]
MEAN = np.array([0.45, 0.6])  # (3, 4), of norm 5, is scaled to (0.6, 0.8); (0.3, 0.4) is shorter than 1


def vector(model):
    return np.concatenate([model["v"], model["w"]])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (FedAvg, MEAN),
        (lambda: FedYogi(eta=0.1, tau=1e-3), 0.1 * MEAN / (MEAN + 1e-3)),  # m^ = D, v^ = D^2 at first
        (lambda: FedDyn(alpha=0.5), 2 * MEAN),  # h = -alpha D, x = D - h / alpha
        (lambda: FedAvg(mean="median"), MEAN),  # of two: their mean
    ],
)
def test_a_small_norm_clips_by_hand(wrapper, make, expected):
    (got,) = rounds(WRAPPERS[wrapper](make(), 1.0), START, UPDATES, MODS.get(wrapper))
    np.testing.assert_allclose(vector(got), expected, rtol=1e-5)


def test_the_noise_has_the_size_it_should_and_the_dtype_stays():
    """Standard deviation: noise multiplier times norm over clients, 2 * 3 / 2 = 3."""
    np.random.seed(0)
    start = {"w": np.zeros(10_000, np.float32)}
    wrapped = WRAPPERS["server-side fixed"](FedAvg(), 3.0, noise=2.0)
    (got,) = rounds(wrapped, start, [{"w": start["w"] + np.float32(1e-6)}] * 2)
    assert got["w"].dtype == np.float32
    assert got["w"].std() == pytest.approx(3.0, rel=0.03)


# ---- what the wrappers need of a rule ---------------------------------------------------------------


def test_refused_answers_thin_out_the_mean_unless_min_replies_forbids_it():
    """Of ten answers nine are NaN: the tenth counts ten times, and the noise is that of ten."""
    models = [UPDATES[1]] + [{n: np.full(1, np.nan, np.float32) for n in "vw"}] * 9
    (thin,) = rounds(WRAPPERS["client-side fixed"](FedAvg(), 1.0), START, models)
    np.testing.assert_array_equal(vector(thin), vector(UPDATES[1]))
    rule = FedAvg(min_replies=10)
    (kept,) = rounds(WRAPPERS["client-side fixed"](rule, 1.0), START, models)
    assert kept is START


LACKS = {
    "weighted_by_key=None": {"weighted_by_key": "num-examples"},
    f"min_replies={CLIENTS}": {"min_replies": CLIENTS - 1},
    "seed=None": {"seed": 1},
}
ENOUGH = {"weighted_by_key": None, "min_replies": CLIENTS}


@pytest.mark.parametrize(("wrapper", "lack"), [*zip(WRAPPERS, [*LACKS, *LACKS], strict=False)])
def test_a_check_names_what_a_rule_lacks_under_a_wrapper(wrapper, lack):
    wrapped = WRAPPERS[wrapper](FedAvg(**ENOUGH | LACKS[lack]), 1.0)
    with pytest.raises(ValueError, match=f"^{type(wrapped).__name__} protects less than") as error:
        check_wrapper(wrapped)
    assert [other for other in LACKS if other in str(error.value)] == [lack]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_rule_with_all_that_a_wrapper_needs_passes_the_check(wrapper):
    check_wrapper(WRAPPERS[wrapper](FedAvg(**ENOUGH), 1.0))


@pytest.mark.parametrize("other", [FedAvg(), flower.FedAvg()])
def test_what_is_no_wrapper_is_refused_by_the_check(other):
    with pytest.raises(TypeError, match="is no privacy wrapper around a PseudoGradientStrategy"):
        check_wrapper(other)


# ---- limits of Flower's wrappers, told in docs/algorithms.md ----------------------------------------


def test_a_counter_takes_part_in_the_norm_but_is_not_clipped():
    """By hand: the counter moved by 3, w by 4, the norm is 5; at 1, w moves by 0.8, the counter by 3."""
    start = {"bn.num_batches_tracked": np.array(0), "w": np.zeros(1, np.float32)}
    model = {"bn.num_batches_tracked": np.array(3), "w": np.full(1, 4, np.float32)}
    (got,) = rounds(WRAPPERS["server-side fixed"](FedAvg(), 1.0), start, [model, model])
    assert got["w"] == pytest.approx(0.8)
    assert got["bn.num_batches_tracked"] == 3
    (ours,) = rounds(FedAvg(clip_update_norm=1.0), start, [model, model])
    assert ours["w"] == pytest.approx(1.0)


def test_a_vector_of_integers_cannot_be_clipped():
    start, model = {"n": np.zeros(2, np.int64)}, {"n": np.full(2, 9)}
    with pytest.raises(TypeError, match="Cannot cast"):
        rounds(WRAPPERS["server-side fixed"](FedAvg(), 1.0), start, [model, model])


def test_an_unchanged_model_ends_the_run():
    with pytest.raises(ZeroDivisionError):
        rounds(WRAPPERS["server-side fixed"](FedAvg(), 1.0), START, [START, START])


def test_one_error_costs_the_whole_round():
    def client(message, i):
        return train_reply(message, UPDATES[0]) if i else Message(Error(8, "broken"), reply_to=message)

    grid = CannedGrid(2, client)
    for strategy, counts in ((FedAvg(), True), (WRAPPERS["server-side fixed"](FedAvg(), 1.0), False)):
        updated, _ = train(strategy, START, grid)
        assert (updated is not None) == counts


def test_a_malformed_answer_ends_the_run_on_the_server_side_but_not_on_the_client_side():
    models = [UPDATES[0], {"v": np.zeros(1, np.float32)}]
    with pytest.raises(ValueError, match="zip"):
        rounds(WRAPPERS["server-side fixed"](FedAvg(), 1e9), START, models)
    (got,) = rounds(WRAPPERS["client-side fixed"](FedAvg(), 1e9), START, models)
    np.testing.assert_allclose(vector(got), (3, 4))


def test_adaptive_clipping_moves_away_from_its_target():
    """Every update is clipped, half should be: Andrew et al. 2021 raise the norm; Flower 1.41 lowers it."""
    wrapped = WRAPPERS["server-side adaptive"](FedAvg(), 1.0)
    rounds(wrapped, START, [UPDATES[0]] * 2)
    assert wrapped.clipping_norm == pytest.approx(np.exp(-0.2 * (1 - 0.5)))


def test_the_accountant_takes_flowers_fedavg_alone():
    config = SimpleNamespace(sampling_method=SamplingMethod.NO_AMPLIFICATION)
    with pytest.raises(ValueError, match=r"requires a strategy using FedAvg\.aggregate_train"):
        flower.DifferentialPrivacyServerSideFixedClipping(
            FedAvg(), 1.0, 1.0, CLIENTS, accountant=SimpleNamespace(config=config)
        )


def test_scaffold_does_not_go_with_them():
    """The control variate's change, zero here, is clipped as if it were a model; the mods refuse it."""
    start = {n: a + np.float32(5) for n, a in START.items()}
    models = [{n: start[n] + update[n] for n in start} for update in UPDATES]
    rule = Scaffold()
    rounds(WRAPPERS["server-side fixed"](rule, 1.0), start, models)
    assert (np.abs(rule.rule_state.vectors["c"]) > 1).all()
    rule = Scaffold()
    rounds(WRAPPERS["client-side fixed"](rule, 1.0), start, models, fixedclipping_mod)
    assert rule.rule_state.updates == 0
