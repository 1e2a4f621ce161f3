"""Experiments in YAML: what is read as what, and the same checks as of TOML."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.sweeps.experiment_files import parse_yaml, read_experiment

from ..refusal import one_line

TOML = """
strategy = ["fedavg", "fedyogi"]
client-lr = 1e-3
fast = "off"
normalize = true
[[runs]]
client = "fedbn"
[[runs]]
client = "silobn"
rounds = 3
"""
YAML = """
strategy: [fedavg, fedyogi]  # a sweep
client-lr: 1e-3
fast: off
normalize: true
runs:
  - client: fedbn
  - client: silobn
    rounds: 3
"""


def test_a_yaml_file_is_the_experiment_of_the_same_toml_file(tmp_path):
    (tmp_path / "e.toml").write_text(TOML)
    for name in ("e.yaml", "e.yml"):
        (tmp_path / name).write_text(YAML)
        one, other = read_experiment(tmp_path / name), read_experiment(tmp_path / "e.toml")
        assert one.configurations() == other.configurations()
        assert len(one.configurations()) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("False", False),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("012", "012"),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("'1'", "1"),
        ("~", None),
    ],
)
def test_plain_words_are_what_yaml_1_2_says(text, value):
    assert parse_yaml(f"key: {text}") == {"key": value}
    assert type(parse_yaml(f"key: {text}")["key"]) is type(value)


@given(st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_as_toml_reads_them(number):
    assert parse_yaml(f"key: {number!r}") == tomllib.loads(f"key = {number!r}") == {"key": number}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds: 1\nrounds: 2", "cannot be read ('rounds' is given twice)"),
        ("runs:\n  - {seed: 1, seed: 2}", "cannot be read ('seed' is given twice)"),
        ("rounds: [", "cannot be read (while parsing a flow node"),
        ("!!python/object/apply:os.getcwd []", "cannot be read (could not determine a constructor for"),
        ("- fedavg", "is not an experiment; expected keys with values"),
        ("rounds:", "rounds: None is not allowed"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, message):
    (tmp_path / "e.yaml").write_text(text)
    with one_line(message):
        read_experiment(tmp_path / "e.yaml")
