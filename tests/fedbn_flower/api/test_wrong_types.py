"""Whatever a keyword of `simulate` is given is accepted, or refused in one line, before anything trains."""

import os
import random
import tomllib

import numpy as np
import pytest

import fedbn_flower.api.simulate as api
from fedbn_flower import simulate
from fedbn_flower.config.gone import GONE
from fedbn_flower.config.keys import ALIASES, RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.config.named_algorithms import REGISTRIES, settings_of
from fedbn_flower.core.errors import UserError, not_allowed
from fedbn_flower.core.ground.settings import kinds_of
from fedbn_flower.runtime import simulation
from fedbn_flower.runtime.pools import check_workers
from fedbn_flower.server.federation import Federation
from fedbn_flower.strategies import FedAvg

from ..privacy.asked import Site

X, Y = np.zeros((6, 3), np.float32), np.arange(6) % 2


class Odd:
    def __repr__(self):
        raise RuntimeError("no words\nfor it")


POOL = [
    True, False, -1, 0, 3, 2**63, 10**400, 10**5000, 0.5, -1e300, float("nan"), float("inf"), 1j,
    np.float32(2), "", "\0", "a\0b", "a\nb", "\x1b[2J", "x", "1e400", "9" * 400, "a/" * 3000,
    b"x", None, (1,), [], [3], {}, np.zeros((40, 40)), object(), Odd(), len, Odd,
]  # fmt: skip
OWNERS = {key: (r.key, name) for r in REGISTRIES for name, cls in r.names.items() for key in settings_of(cls)}
"""For each setting an algorithm that has it."""
KEYS = [*RUN_KEYS, *OWNERS, *ALIASES, *GONE, "no-key", "data", "test", "observers", "extensions", "progress"]

OTHER_WORDS = {**ALIASES, "extensions": "extension"}


class Accepted(Exception):
    pass


@pytest.fixture
def outcome(monkeypatch, tmp_path, cache_dir):
    """What becomes of keywords: the line of the error, or nothing where all would run."""

    def validated(config, console, observers):
        check_workers(config)
        simulation.check_simulation(config)
        Federation(config)
        raise Accepted

    def no_hub(name, *_):
        raise not_allowed("dataset", name, "one that is here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "_run", validated)
    monkeypatch.setattr("fedbn_flower.files.opening.load_splits", no_hub)

    def found(**keys):
        try:
            simulate(**{"progress": False, "backend": "inline", "cache_dir": cache_dir, **keys})
        except Accepted:
            return ""
        except UserError as error:
            return str(error)

    return found


def assert_a_line(text, keys):
    assert text.isprintable()
    assert not text or any(key in text for key in (*keys, "configuration"))


@pytest.mark.sampled(26)
@pytest.mark.parametrize("key", KEYS)
def test_any_value_is_accepted_or_refused_in_one_line(key, outcome):
    given = dict([OWNERS[key]]) if key in OWNERS else {}
    for value in POOL:
        text = outcome(**given | {key.replace("-", "_"): value})
        assert_a_line(text, [key, OTHER_WORDS.get(key, key), *given])


def test_so_are_several_at_once(outcome):
    draw = random.Random(0)
    for _ in range(200):
        keys = draw.sample([key for key in KEYS if key not in ("progress", "dataset")], 3)
        given = {key.replace("-", "_"): draw.choice(POOL) for key in keys}
        assert outcome(**given).isprintable()


NUMBERS = [key for key, field in RUN_KEYS.items() if {int, float} & set(kinds_of(field))]


@pytest.mark.parametrize("key", NUMBERS)
def test_true_is_no_number_nor_is_one_beyond_64_bits(key, outcome):
    whole = [str(2**63)] if int in kinds_of(RUN_KEYS[key]) else []  # 1e300 is text of a number, too
    for value in (True, False, 2**63, 10**400, *whole):
        assert outcome(**{key.replace("-", "_"): value}).startswith(f"{key}: ")
        if isinstance(value, bool):
            with pytest.raises(UserError, match=rf"^{key}: {value} is not allowed; expected "):
                run_config(tomllib.loads(f"{key} = {str(value).lower()}"))


def test_true_after_an_equal_number_is_still_refused(outcome):
    for number in (1, 1.0):
        assert outcome(strategy="fedavg", server_lr=number, rounds=number) == ""
        with pytest.raises(UserError, match="^server-lr: True is not allowed; expected a number > 0"):
            run_config({"strategy": "fedavg", "server-lr": True, "rounds": number})
        with pytest.raises(UserError, match="^rounds: True is not allowed; expected a whole number >= 1"):
            run_config({"strategy": "fedavg", "server-lr": number, "rounds": True})
    with pytest.raises(ValueError, match="eta=True is not allowed; expected a number > 0"):
        FedAvg(eta=True)


def test_a_setting_that_is_text_has_as_many_bits(outcome):
    for text in (str(2**63), str(2**64)):
        line = outcome(strategy="fedsat", objective="fedsat", top_p=text)
        assert line.startswith("top-p: ")
    assert FedAvg(seed=2**64 - 1)
    with pytest.raises(ValueError, match="seed=.* is not allowed"):
        FedAvg(seed=2**64)


def test_text_that_is_a_number_keeps_its_form_after_an_equal_one():
    assert [run_config({"freeze": value}).freeze for value in (1, 1.0, 1)] == ["1", "1.0", "1"]


@pytest.mark.parametrize("make", [simulate, lambda **keys: run_config(keys)])
def test_a_nul_character_is_one_line_wherever_it_is_written(make):
    for key in ("dataset", "model", "init", "resume"):
        with pytest.raises(UserError, match=rf"^{key}: 'a\\x00b' is not allowed; expected text without NUL"):
            make(**{key: "a\0b"})


@pytest.mark.parametrize("key", ["data_path", "state_dir", "cache_dir", "init"])
def test_so_is_one_in_a_node_config(key, configured):
    site = Site(configured(rounds=1), **{key: "a\0b"})
    line = f"{key.replace('_', '-')}: 'a\\x00b' is not allowed; expected text without NUL characters"
    for kind in ("train", "evaluate", "query.partition_id", "query.sizes", "query.complete"):
        with pytest.raises(UserError) as raised:
            site.ask(kind)
        assert str(raised.value) == line


@pytest.mark.parametrize("value", [3, [3], "x", b"x"])
def test_observers_are_observers(value, outcome):
    assert outcome(observers=value).startswith("observers: ")
    assert outcome(observers=value).endswith(" is not allowed; expected instances of Observer")


def test_a_long_value_is_shortened_in_its_line_and_a_long_name_is_no_path(outcome):
    line = outcome(model="9" * 10**5)
    assert line.startswith("model: '999")
    assert line.endswith(
        "999' is not allowed; expected names of at most 255 bytes, as files have, and 2048 in all"
    )
    assert len(line) < 500
    assert outcome(cache_dir=os.sep.join(["a" * 250] * 8)) == ""
