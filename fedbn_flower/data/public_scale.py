"""A scale of a table's numbers that is known without looking at the rows."""

import math
from collections.abc import Sequence

from ..core.errors import not_allowed, unknown_name
from .images.moments import Scale
from .readers.tables.column_text import Feature, split_words

FORM = "COLUMN=MEAN:DEVIATION with commas, such as age=50:20,bmi=25:5"


def public_scale(text: str, columns: Sequence[Feature]) -> Scale:
    """Return means and deviations by encoded column; 0 and 1 where the text names none.

    Parameters
    ----------
    text : str
        The key ``dp-scale``.
    columns : Sequence[Feature]
        How the table is encoded.

    Raises
    ------
    UserError
        When it names what is no column of numbers, or has another form.
    """
    places: dict[str, int] = {}
    width = 0
    for feature in columns:
        if not feature.values:
            places[feature.name] = width
        width += feature.width
    mean, std = [0.0] * width, [1.0] * width
    for word in split_words(text) if text else []:
        name, _, values = word.rpartition("=")
        if name not in places:
            raise unknown_name("dp-scale", name or word, places)
        try:
            center, deviation = map(float, values.split(":"))
        except ValueError:
            raise not_allowed("dp-scale", text, FORM) from None
        if not (math.isfinite(center) and 0 < deviation < math.inf):
            raise not_allowed("dp-scale", text, FORM)
        mean[places[name]], std[places[name]] = center, deviation
    return Scale(tuple(mean), tuple(std))
