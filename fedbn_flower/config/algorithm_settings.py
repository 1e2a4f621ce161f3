"""The settings of a run's algorithms, checked."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from ..core.errors import UserError, check_plain, not_allowed
from ..core.ground.settings import allowed, model_of
from .named_algorithms import Named, Setting, flags, settings_of


def resolve(algorithms: Iterable[Named], given: Mapping[str, Any]) -> dict[str, Setting]:
    """Every setting of the algorithms by flag: what is given, checked, and the other defaults.

    Parameters
    ----------
    algorithms : Iterable[Named]
        Those of a run.
    given : Mapping[str, object]
        Keys of the run, and settings.

    Raises
    ------
    UserError
        For a value that is not allowed.
    """
    resolved: dict[str, Setting] = {}
    for algorithm in algorithms:
        settings = settings_of(algorithm.cls)
        if not settings:
            continue
        model, known = model_of(algorithm.cls), flags(algorithm.cls)
        try:
            values = model.model_validate({key: given[key] for key in known if key in given}, by_name=False)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            words = allowed(model.model_fields[known[key].strip("_")])
            if key not in given:
                raise UserError(f"{key}: missing; {algorithm} needs {words}") from None
            raise not_allowed(key, given[key], words) from None
        for key in settings:
            value = getattr(values, known[key].strip("_"))
            check_plain(key, value)
            if resolved.setdefault(key, value) != value:
                defaults = f"{resolved[key]!r} or {value!r}"
                raise UserError(
                    f"{key}: missing; {algorithm} and another have different defaults ({defaults})"
                )
    return resolved
