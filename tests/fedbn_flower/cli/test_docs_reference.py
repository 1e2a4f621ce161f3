"""What is made from the declarations is as they are."""

import tomllib
from itertools import combinations, product

from clients import CLIENTS, OBJECTIVES
from fedbn_flower.cli import docs_reference as reference
from fedbn_flower.config.run_config import RunConfig
from fedbn_flower.config.selection import settings_of
from strategies import STRATEGIES


def test_pyproject_and_the_reference_are_up_to_date():
    """If not: ``python -m fedbn_flower.reference``."""
    text = reference.PYPROJECT.read_text()
    assert reference.pyproject(text) == text
    assert reference.reference() == reference.REFERENCE.read_text()


def test_a_key_that_went_or_came_is_put_right():
    text = "a = 1\n[tool.flwr.app.config]\nold = 3\n\n[tool.next]\nb = 2\n"
    made = tomllib.loads(reference.pyproject(text))
    assert made["tool"]["flwr"]["app"]["config"] == reference.run_config()
    assert (made["a"], made["tool"]["next"]) == (1, {"b": 2})


def test_flowers_run_config_as_it_stands_is_the_default_configuration():
    listed = tomllib.loads(reference.PYPROJECT.read_text())["tool"]["flwr"]["app"]["config"]
    assert RunConfig.of(listed) == RunConfig.of({})


def test_every_setting_of_every_algorithm_is_in_both():
    text, listed = reference.reference(), reference.run_config()
    for cls in (*STRATEGIES.values(), *CLIENTS.values(), *OBJECTIVES.values()):
        for key in settings_of(cls):
            assert listed[key] == "auto"
            assert f"| `{key}` |" in text
    assert "eta-l" not in listed  # declared as an argument that nothing uses


def test_those_of_a_run_who_share_a_flag_agree_on_its_default():
    shared = set()
    for kinds in combinations((STRATEGIES, CLIENTS, OBJECTIVES), 2):
        for pair in product(*(kind.values() for kind in kinds)):
            one, other = map(settings_of, pair)
            for key in one.keys() & other.keys():
                assert one[key].default == other[key].default
                shared.add(key)
    assert shared == {"alpha"}  # of feddyn, both halves
