"""The keys of extensions: where they are listed, and what is written of other keys beside them."""

from pydantic import Field as setting

from fedbn_flower.config.keys import OWN, RUN_KEYS, SECTIONS, in_order
from fedbn_flower.config.making import run_config
from fedbn_flower.config.run_config import RunConfig
from fedbn_flower.core.ground.settings import KeyGroup
from fedbn_flower.extensions.privacy import NO_METRICS


def test_fields_and_keys_of_a_run_are_the_same():
    assert list(run_config({}).to_user_config())[: len(RUN_KEYS)] == list(RUN_KEYS)
    assert {name.replace("_", "-") for name in RunConfig.model_fields} == {*RUN_KEYS, "algorithm-settings"}


def test_what_an_extension_says_of_other_keys_are_their_defaults():
    assert dict(NO_METRICS) == {key: RUN_KEYS[key].default for key in NO_METRICS}


def test_sections_are_in_one_piece_and_in_the_order_of_the_keys():
    assert [key for keys in SECTIONS.values() for key in keys] == list(RUN_KEYS)


class Beside(KeyGroup):
    """Training"""

    after = "local-epochs"
    beside: int = setting(1)


class Below(KeyGroup):
    """Further"""

    after = "beside"
    below_it: int = setting(1)


class Last(KeyGroup):
    """Last"""

    last: int = setting(1)


def test_a_group_follows_the_key_that_it_names():
    found = in_order((*OWN, Beside, Below, Last))
    names = [key.name for key in found]
    assert names[names.index("local-epochs") :][:4] == ["local-epochs", "beside", "below-it", "batch-size"]
    assert names[-1] == "last"
    assert [key.title for key in found if key.name in ("beside", "below-it")] == ["Training", "Further"]
