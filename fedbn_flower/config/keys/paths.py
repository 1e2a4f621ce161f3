"""The keys whose values may be paths."""

from collections.abc import Mapping

from flwr.app import UserConfigValue

from ...core.files import absolute
from ...extensions.devices import absolute_devices
from .availability import absolute_availability

ABSOLUTE = {"availability": absolute_availability, "devices": absolute_devices, "init": absolute}


def with_absolute_paths(values: Mapping[str, UserConfigValue]) -> dict[str, UserConfigValue]:
    """Return the values of a run with absolute paths, as the current folder may change.

    Raises
    ------
    UserError
        For a value that is neither a path nor another allowed value of the key.
    """
    given = {key: str(v) for key, v in values.items() if key in ABSOLUTE and v != "" and type(v) is not bool}
    return {**values, **{key: ABSOLUTE[key](value) for key, value in given.items()}}
