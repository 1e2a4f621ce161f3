"""What a message suggests for a name that is not known."""

from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.named_algorithms import built_in_settings
from fedbn_flower.core.text import ADVICE, SYNONYMS, hint


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
