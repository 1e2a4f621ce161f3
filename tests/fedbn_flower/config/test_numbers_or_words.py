"""A number is a number, and a word a word, however it is given: as text, from Python, in TOML, in a sweep."""

import tomllib
from typing import Literal

import pytest

from fedbn_flower import simulate
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground.settings import allowed, checked, model_of, setting
from fedbn_flower.strategies import FedAvg

NUMBERS = (0, 1, 2, 0.5, 2024)
PRIVATE = {"dp": "client", "dp-noise": 1.0, "dp-delta": 1e-3, "num-clients": 60, "partition": "iid"}
"""What makes ``dp-clip`` count."""


def _found(make):
    """What a run has or says of its configuration, without the quotes of a value that was text."""
    try:
        return [str(config.to_user_config()) for config in make()]
    except UserError as error:
        return str(error).replace("'", "")


def _given(key, value):
    more = PRIVATE if key == "dp-clip" else {}
    return {name: v for name, v in more.items() if name != key} | {key: value}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("key", RUN_KEYS)
def test_every_key_takes_a_number_from_python_and_toml_as_the_command_line_does(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in NUMBERS:
        written = _found(lambda: [run_config(_given(key, str(number)))])  # noqa: B023
        assert _found(lambda: [run_config(_given(key, number))]) == written  # noqa: B023
        toml = "\n".join(f"{name} = {value!r}" for name, value in _given(key, number).items())
        assert _found(lambda: [run_config(tomllib.loads(toml))]) == written  # noqa: B023


def test_a_clip_is_a_number_or_adaptive_everywhere(tmp_path):
    files = pytest.importorskip("fedbn_flower.sweeps.experiment_files")
    for clip, expected in ((0.5, 0.5), ("0.5", 0.5), (2, 2.0), ("adaptive", None)):
        assert run_config(_given("dp-clip", clip)).clip == expected
    file = tmp_path / "clips.toml"
    lines = [f"{key} = {value!r}" for key, value in PRIVATE.items()]
    file.write_text("\n".join([*lines, 'dp-clip = [0.5, 2, "adaptive", "0.25"]']))
    assert [one.clip for one in files.read_experiment(file).configurations()] == [0.5, 2.0, None, 0.25]
    flags = [word for key, value in PRIVATE.items() for word in (f"--{key}", str(value))]
    assert [one.clip for one in parse([*flags, "--sweep", "dp-clip=0.5,adaptive"])] == [0.5, None]
    with pytest.raises(UserError, match=r"dp-clip: -0.5 is not allowed; expected a number > 0, or adaptive"):
        simulate(dp="client", dp_clip=-0.5)


def test_names_that_are_numbers_are_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for key in ("init", "devices", "availability"):
        assert dict(run_config({key: 0}).to_user_config())[key] == str(tmp_path / "0")
    assert run_config({"freeze": 0, "memory-name": 2024}).freeze == "0"
    (tmp_path / "2024").mkdir()
    with pytest.raises(UserError, match=r"'2024'"):
        simulate(dataset=2024)


class Own(FedAvg):
    """A rule with settings that are a number or a word, and text."""

    share: float | Literal["all"] = setting(0.5, description="which share")
    label: str = setting("a", description="a label")


@pytest.mark.parametrize("number", [0.25, "0.25"])
def test_settings_of_own_algorithms_take_both(number):
    assert checked(Own, {"share": number, "label": number})["share"] == 0.25
    assert checked(Own, {"label": number})["label"] == "0.25"
    assert checked(Own, {"share": "all"})["share"] == "all"
    assert allowed(model_of(Own).model_fields["share"]) == "a number or 'all'"
    with pytest.raises(ValueError, match=r"share='most' is not allowed; expected a number or 'all'"):
        checked(Own, {"share": "most"})
