"""The base of a group of keys."""

from pydantic import BaseModel, ConfigDict


def flag_of(name: str) -> str:
    """A field's name on the command line and in a run configuration."""
    return name.replace("_", "-")


class KeyGroup(BaseModel):
    """Keys of a run that belong together; the docstring of a subclass is their title.

    Text may be given as a number, as Python and TOML write it: a folder may be called 2024, a layer 0.
    """

    model_config = ConfigDict(
        alias_generator=flag_of,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
    )
