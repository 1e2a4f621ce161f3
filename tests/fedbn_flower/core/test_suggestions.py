"""What a message suggests for a name that is not known."""

import pytest

from fedbn_flower import UserError, simulate
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.unused_keys import built_in_settings
from fedbn_flower.core.text import ADVICE, SYNONYMS, hint


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        ("--epochs 2", "did you mean --local-epochs?"),
        ("--lr 0.1", "did you mean --client-lr?"),
        ("--lr=0.1", "did you mean --client-lr?"),
        ("--gpus 1", "did you mean --device?"),
        ("--early-stopping 3", "did you mean --patience?"),
        ("--clients 3", "did you mean --num-clients?"),
        ("--Num_Clients 3", "did you mean --num-clients?"),
        ("--epsilon 3", "FedAdam and FedYogi call it tau; of differential privacy it is dp-epsilon"),
        ("--noise-multiplier 1", "did you mean --dp-noise?"),
        ("--dropot 0.1", "did you mean --dropout?"),
        ("--zzzz 1", "unknown flag; see --help"),
        ("--client FedBN", "client: unknown name 'FedBN' (did you mean 'fedbn'?)"),
        ("--client FedBn+fedper", "client: unknown name 'FedBn' (did you mean 'fedbn'?)"),
        ("--strategy FedAvg", "strategy: unknown name 'FedAvg' (did you mean 'fedavg'?)"),
        ("--strategy FedProx", "strategy: unknown name 'FedProx' (it is objective 'fedprox'); expected"),
        ("--strategy fedmedian", "strategy: unknown name 'fedmedian' (strategy fedavg with mean median)"),
        ("--model CNN_BN", "model: unknown name 'CNN_BN' (did you mean 'cnn-bn'?)"),
        (
            "--sweep epochs=1,2",
            "configuration: unknown name 'epochs' (did you mean 'local-epochs'?); see --help",
        ),
        ("--settings lr=1", "configuration: unknown name 'lr' (did you mean 'client-lr'?)"),
    ],
)
def test_a_name_is_suggested_by_its_meaning_and_by_its_spelling(arguments, near):
    with pytest.raises(UserError) as caught:
        parse(arguments.split())
    assert near in str(caught.value)
    assert "\n" not in str(caught.value)


def test_from_python_too():
    with pytest.raises(UserError, match=r"unknown name 'epochs' \(did you mean 'local-epochs'\?\)"):
        simulate(epochs=2)


def test_only_what_could_have_been_meant_is_suggested():
    assert hint("lr", ["income", "age"]) == ""
    assert hint("Age", ["income", "age"]) == " (did you mean 'age'?)"
    assert hint("gpus", ["device"], "--") == " (did you mean --device?)"


def test_every_meaning_is_a_key_and_no_word_is_one():
    known = {*RUN_KEYS, *built_in_settings()}
    words = [word for words in SYNONYMS.values() for word in words.split()]
    assert SYNONYMS.keys() <= known
    assert not {*words, *ADVICE} & known
    assert len(words) == len(set(words))
