"""Read the subgroups of a table's rows, by the columns that ``subgroups`` names."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ....core.errors import not_allowed
from ...dataset import Request
from ...notes import Note
from ...splits.subgroups import KEY, NONE, Attribute, Words, attributes_of
from .words import alike, as_text, listed, refuse_nested

if TYPE_CHECKING:
    from pandas import DataFrame


def attributes_in(request: Request, columns: Collection[str]) -> list[Attribute]:
    """Return what divides the rows of a table with these columns; a site may lack some of them."""
    return [one for one in attributes_of(request.subgroups) if not request.of_site or one.column in columns]


def read_subgroups(request: Request, table: "DataFrame") -> tuple[dict[str, Words], list[Note]]:
    """Return the subgroup of each row, by attribute, and notes on values that are nearly alike.

    Raises
    ------
    UserError
        When the values do not fit, or a comparison divides nothing; at a site it may.
    """
    found, notes = {}, []
    for one in attributes_in(request, table.columns):
        refuse_nested(table[one.column], KEY)
        words = one.of(table[one.column], as_text(table[one.column]).astype(str))
        distinct = sorted({*words.tolist()} - {NONE})
        if one.sign and not request.of_site and len(distinct) < 2:
            holds = "every" if str(one) in distinct else "no"
            wanted = f"a comparison that holds for some rows only: {str(one)!r} does for {holds} one"
            raise not_allowed(KEY, request.subgroups, wanted)
        if same := alike(distinct):
            said = (
                f"{listed(same)} in {str(one)!r} differ only in case or blanks, and are different subgroups"
            )
            notes.append(Note("examples", said))
        found[str(one)] = words
    return found, notes
