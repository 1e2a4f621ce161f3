"""How attacks and attackers are named, drawn and refused."""

import pytest

from fedbn_flower import UserError
from fedbn_flower.attacks.named import NamedAttack, attackers_drawn, named_attacks
from fedbn_flower.config.making import run_config

from ..refusal import one_line


def test_names_and_arguments():
    assert named_attacks("none") == ()
    assert named_attacks("sign-flip:2.5") == (NamedAttack("sign-flip", 2.5),)
    assert named_attacks("replacement:10+backdoor:7") == named_attacks("backdoor:7+replacement:10")
    assert named_attacks("label-flip+alie:0")[0].name == "label-flip"


WRONG = (
    "sign-flip", "sign-flip:0", "gaussian:-1", "ipm:nan", "ipm:inf", "alie:x", "min-max:1", "backdoor", "+",
    "backdoor:-1", "backdoor:1.5", "label-flip+backdoor:1", "ipm:1+alie", "ipm:1+ipm:1", "nobody",
    "label-flip:",
)  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_none(text):
    with pytest.raises(UserError, match=r"attack: '.*' is not allowed; expected none, sign-flip:S"):
        run_config({"attack": text})


@pytest.mark.parametrize("seed", range(5))
def test_a_share_is_drawn_once_for_a_seed(seed):
    drawn = attackers_drawn("0.3", seed, range(10))
    assert len(drawn) == 3
    assert drawn == attackers_drawn("0.30", seed, range(10)) == attackers_drawn(" 0.3", seed, range(10))
    assert attackers_drawn("0.1", seed, range(10)) < drawn  # who attacks in a few does in more


def test_different_seeds_draw_different_clients():
    assert len({attackers_drawn("0.3", seed, range(10)) for seed in range(9)}) > 3


def test_at_least_one_attacks_and_only_those_that_train():
    assert len(attackers_drawn("0.01", 0, range(3))) == 1
    for seed in range(20):
        assert attackers_drawn("0.5", seed, [2, 5, 7, 8]) <= {2, 5, 7, 8}
    assert attackers_drawn("3, 1", 0, range(5)) == {1, 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (text, "a share in (0, 1), written with a point, or partitions with commas")
            for text in ("0.0", "1.0", "two", "1,two", "")
        ),
        ("1,1", "each client once"),
        ("4", "clients that train, of which 4 is none"),
        ("0,1,2,3", "less than all 4 clients that train"),
    ],
)
def test_attackers_that_cannot_be(text, expected):
    with one_line(f"attackers: {f'{text!r} is not allowed' if text else 'missing'}; expected {expected}"):
        attackers_drawn(text, 0, range(4))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attackers": "3"}, "attackers: 3 is not used without attack"),
        ({"attack": "ipm:1", "client": "alone", "objective": "fedproto", "strategy": "fedproto"}, "client: "),
        (
            {"attack": "label-flip", "reference": "pooled"},
            "reference: 'pooled' is not allowed; expected 'none'",
        ),
        ({"attack": "label-flip", "dp": "local", "dp-epsilon": 1.0, "dp-delta": 1e-5}, "dp: 'local' is not "),
        (
            {"attack": "min-max", "protocol": "fedbuff:2", "concurrency": 2, "devices": "uniform"},
            "protocol: 'fedbuff:2' is not allowed; expected 'sync'",
        ),
    ],
)
def test_what_does_not_go_together(keys, message):
    with one_line(message):
        run_config({"dataset": "digits"} | keys)
