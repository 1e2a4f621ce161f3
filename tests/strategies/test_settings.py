"""Settings are declared once: arguments, defaults, ranges, flags and words follow."""

import inspect

import pytest

import strategies
from fedbn_flower.core.ground.settings import checked, declared, flag, model_of


class Base:
    """Three settings."""

    eta: float = strategies.setting(0.1, gt=0, alias="server-lr", description="rate")
    _mean: int = strategies.setting(3, ge=1, le=7, description="hidden")
    on: bool = strategies.setting(True, description="switch")


class Derived(Base):
    """One default changed, one setting taken back, one added."""

    eta = 0.5
    number: int | None = strategies.setting(None, gt=0, description="optional")

    @property
    def on(self):
        return False


def test_what_is_declared():
    assert {name: field.default for name, field in declared(Base).items()} == {
        "eta": 0.1,
        "_mean": 3,
        "on": True,
    }
    assert {name: field.default for name, field in declared(Derived).items()} == {
        "eta": 0.5,
        "_mean": 3,
        "number": None,
    }
    assert declared(Base)["eta"].default == 0.1  # is not changed by the subclass


def test_names():
    assert [flag(name, field) for name, field in declared(Base).items()] == ["server-lr", "mean", "on"]
    assert list(model_of(Base).model_fields) == ["eta", "mean", "on"]


def test_values_by_attribute():
    assert checked(Derived, {"mean": 5}) == {"eta": 0.5, "_mean": 5, "number": None}


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"eta": 0.0}, "eta=0.0 is not allowed; expected a number > 0"),
        ({"eta": float("nan")}, "eta=nan is not allowed; expected a number > 0"),
        ({"mean": 8}, r"mean=8 is not allowed; expected a whole number in \[1, 7\]"),
        ({"on": "perhaps"}, "on='perhaps' is not allowed; expected true or false"),
        ({"server-lr": 1.0}, "has no argument 'server-lr'"),
    ],
)
def test_what_is_not_allowed_is_reported(given, output):
    with pytest.raises(ValueError, match=output):
        checked(Base, given)


def test_a_subclass_of_a_rule_changes_a_default():
    class Faster(strategies.FedAdagrad):
        eta = 0.3

    assert (strategies.FedAdagrad().eta, Faster().eta, Faster(eta=0.2).eta) == (0.01, 0.3, 0.2)
    assert inspect.signature(Faster).parameters["eta"].default == 0.3


def test_signatures_for_help_and_editors():
    class Own(strategies.FedAvg):
        def __init__(self, patience, **kwargs):
            super().__init__(**kwargs)

    class Plain(strategies.FedProx):
        pass

    class OfOwn(Own):
        pass

    assert list(inspect.signature(Own).parameters) == ["patience", "kwargs"]
    assert list(inspect.signature(OfOwn).parameters) == ["patience", "kwargs"]
    for rule, name, default in (
        (strategies.FedProx, "proximal_mu", 0.0),
        (Plain, "proximal_mu", 0.0),
        (strategies.FedAvgM, "server_momentum", 0.9),
        (strategies.FedAvg, "eta", 1.0),
        (strategies.FedTrimmedAvg, "beta", 0.2),
    ):
        assert inspect.signature(rule).parameters[name].default == default
    assert "trim" not in inspect.signature(strategies.FedTrimmedAvg).parameters


MISTAKEN = [
    (
        strategies.FedYogi,
        {"lr": 0.1},
        "FedYogi has no argument 'lr'; did you mean eta (server learning rate)?",
    ),
    (strategies.FedYogi, {"server_lr": 0.1}, "FedYogi has no argument 'server_lr'; did you mean eta (server"),
    (strategies.FedYogi, {"epsilon": 1e-8}, "FedYogi has no argument 'epsilon'; did you mean tau (degree"),
    (strategies.FedYogi, {"beta1": 0.9}, "FedYogi has no argument 'beta1'; did you mean beta_1?"),
    (
        strategies.FedAvgM,
        {"learning_rate": 1},
        "FedAvgM has no argument 'learning_rate'; did you mean server_l",
    ),
    (strategies.FedProx, {"mu": 1}, "FedProx has no argument 'mu'; did you mean proximal_mu (weight"),
    (
        strategies.FedAvg,
        {"xyzzy": 1},
        "FedAvg has no argument 'xyzzy'; it has fraction_train, fraction_evaluate,",
    ),
]


def test_an_argument_that_there_is_not_names_what_was_meant():
    for rule, arguments, output in MISTAKEN:
        with pytest.raises(TypeError) as caught:
            rule(**arguments)
        assert str(caught.value).startswith(output)
        assert "\n" not in str(caught.value)


def test_an_argument_given_twice_names_the_class():
    with pytest.raises(TypeError, match="^FedAvg: multiple values for argument 'fraction_train'$"):
        strategies.FedAvg(0.5, fraction_train=0.5)


@pytest.mark.parametrize(
    ("rule", "settings", "allowed"),
    [
        (strategies.FedProto, {"num_classes": 0}, "a whole number > 0"),
        (strategies.FedProto, {"num_features": 0}, "a whole number > 0"),
        (strategies.FedSat, {"num_classes": 0}, "a whole number > 0"),
        (strategies.FedNova, {"local_epochs": 0}, "a whole number > 0"),
        (strategies.FedNova, {"batch_size": -1}, "a whole number >= 0"),
        (strategies.FedAdam, {"eta_l": 0.0}, "a number > 0"),
    ],
)
def test_settings_without_a_flag_have_ranges_too(rule, settings, allowed):
    """No page of the docs prints them."""
    with pytest.raises(ValueError, match=f"is not allowed; expected {allowed}"):
        rule(**settings)
