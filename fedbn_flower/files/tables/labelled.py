"""The rows of a table that have a label: their targets, and whose they are."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns

from ...core.errors import UserError, not_allowed, unknown_name
from ...core.notes import Note
from ...core.text import number_of
from ...data.dataset import Request, Split
from ...data.splits import Rows, Units, held_out_fifth, held_out_groups, held_out_units, units_of
from ...data.splits.groups import PATIENT
from ...data.splits.origins import Origins
from ...data.splits.split_by import SplitBy
from ...data.splits.subgroups import KEY as SUBGROUPS
from ...data.splits.subgroups import NONE, Attribute, Words, attributes_of
from .labels import Targets, encode_several, encode_targets, find_labels
from .table_file import ReadTable, words_taken
from .words import alike, as_text, is_nested, listed, refuse_nested

if TYPE_CHECKING:
    from pandas import DataFrame


def counted(words: Counter[str]) -> str:
    """Return words with their counts."""
    return " and ".join(f"{word!r} ({count})" for word, count in sorted(words.items()))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled rows.

    Parameters
    ----------
    table : DataFrame
        These rows, all columns; the index is their number in the whole table.
    label_names : list[str]
        The label columns.
    targets : Targets
        What the label columns say.
    ids : NDArray, optional
        The natural clients' ids, if a group column was requested.
    units : Units, optional
        The unit of each row, if a unit column was requested.
    notes : tuple[Note, ...]
        A line on the rows that are left out.
    split_by : SplitBy, optional
        Which rows to train on, if that was requested.
    """

    table: "DataFrame"
    label_names: list[str]
    targets: Targets
    ids: NDArray[np.str_] | None
    units: Units | None
    notes: tuple[Note, ...]
    split_by: SplitBy | None = None
    subgroups: Mapping[str, Words] = field(default_factory=dict)
    """The subgroup of each row, by attribute, if they were requested."""

    def with_columns(self, inputs: Columns, origins: Origins) -> Split:
        """Return the rows as examples with these inputs, which come from these places."""
        numbers, names = self.units or (None, None)
        return Split({**inputs, "y": self.targets.y}, self.ids, numbers, names, origins, self.subgroups)

    def divided(self, request: Request, is_test: NDArray[np.bool_] | None) -> tuple[Rows, Rows, list[Note]]:
        """Return training rows and test rows, and notes on how they are divided.

        With a test set, ``is_test`` says which rows are in it, bool (N,). Where it is None, it is
        as ``split-by`` says, or a fifth of the groups, or units, or rows is held out, see `splits`.
        """
        if is_test is not None:
            return np.flatnonzero(~is_test), np.flatnonzero(is_test), []
        y, ids = self.targets.y, self.ids
        if self.split_by:
            train, test = self.split_by.divide(self.table[self.split_by.column])
            text = f"trained on are the rows with {self.split_by.text}, tested on all others"
            return train, test, [Note("examples", text)]
        by, units = request.unit_column or PATIENT, self.units
        if units is None:
            train, test = held_out_fifth(y, ids)
            share = (
                "20 % of the rows" if ids is None else f"20 % of the rows of each {request.group_column!r}"
            )
        elif request.keeps_groups or by == PATIENT:
            train, test = held_out_groups(y, units.numbers, ids)
            share = f"fifth of the groups by {by!r}, with all of their rows,"
        else:
            train, test = held_out_units(y, units.numbers, ids)
            share = f"20 % of the values of {by!r}, with all of their rows,"
        return train, test, [Note("examples", f"no test set: a fixed {share} is held out")]


def labelled_rows(request: Request, table: "DataFrame", parts: Sequence[ReadTable]) -> Labelled:
    """Read the label columns, the group column and the unit column of a table, the rows of these files.

    A unit is called as its first row in the files writes it.

    Raises
    ------
    UserError
        When there is no such column, or its values do not fit.
    """
    labels = find_labels(request.label_column, list(table.columns), request.name)
    label_names = [label.name for label in labels]
    group = request.group_column
    if group and group not in table:
        raise unknown_name("partition", group, table.columns)
    if group in label_names:
        raise not_allowed("partition", f"natural:{group}", "another column: this is the label-column")
    unit = "" if request.unit_pattern else request.unit_column
    split_by = SplitBy.parse(request.split_by) if request.split_by else None
    for key, column in (
        (request.unit_key, unit),
        ("split-by", split_by.column if split_by else ""),
        *((SUBGROUPS, one.column) for one in _attributes_in(request, table.columns)),
    ):
        if column and column not in table:
            raise unknown_name(key, column, table.columns)
        if column and column in label_names:
            raise not_allowed(key, column, "another column: this is the label-column")
    rows = table[label_names].notna().all(axis=1).to_numpy()
    notes = []
    if unlabelled := int((~rows).sum()):
        where = " or ".join(map(repr, label_names))
        words = sum(words_taken(parts, label_names).values(), Counter[str]())
        said = f", where {counted(words)} is taken for none" if words else ""
        found = f"{number_of(unlabelled, 'row')} without a value in {where}{said}{_gone(table, group, rows)}"
        notes.append(Note("left out", found, "missing-values" if words else ""))
        table = table[rows]
    if len(labels) == 1:
        targets = encode_targets(table[label_names[0]], labels[0], request)
    else:
        targets = encode_several(table[label_names], request)
    ids = units = None
    if group:
        ids, same = _ids(table, group, "partition")
        found = f"{listed(same)} differ only in case or blanks, and are different clients"
        notes += [Note("clients", found)] if same else []
    if unit:
        values, same = _ids(table, unit, request.unit_key)
        are = "kept" if request.keeps_groups else "protected"
        numbers = units_of(values).numbers
        spelt = np.concatenate([part.spelt(unit) for part in parts])[table.index]
        units = Units(numbers, spelt[np.unique(numbers, return_index=True)[1]])
        what = f"{unit!r}, by whose values rows are {are} together"
        notes += [Note("left out", what)] if unit != group else []
        found = f"{listed(same)} in {unit!r} differ only in case or blanks, and are {are} apart"
        notes += [Note("examples", found)] if same else []
    if split_by and split_by.column not in (group, unit):
        notes.append(Note("left out", f"{split_by.column!r}, by which rows are for training or testing"))
    subgroups, of_subgroups = _read_subgroups(request, table)
    notes += of_subgroups
    return Labelled(table, label_names, targets, ids, units, tuple(notes), split_by, subgroups)


def _gone(table: "DataFrame", group: str, kept: NDArray[np.bool_]) -> str:
    """Return what is said of natural clients that have none of the rows that are kept."""
    if not group or is_nested(table[group]):
        return ""
    gone = {*as_text(table[group][~kept].dropna())} - {*as_text(table[group][kept].dropna())}
    return f", among them all of {listed(sorted(gone))}" if gone else ""


def _ids(table: "DataFrame", column: str, key: str) -> tuple[NDArray[np.str_], Sequence[str]]:
    """Return a column as text, and the values that differ only in case or blanks.

    Raises
    ------
    UserError
        When a value is missing: it names the key by which the column was asked for.
    """
    if count := int(table[column].isna().sum()):
        raise UserError(
            f"{key}: {column!r} is missing in {number_of(count, 'row')}; expected a value in each"
        )
    refuse_nested(table[column], key)
    ids = as_text(table[column]).astype(np.str_)
    return ids, alike(np.unique(ids).tolist())


def _attributes_in(request: Request, columns: Collection[str]) -> list[Attribute]:
    """Return what divides the rows of a table with these columns; a site may lack some of them."""
    return [one for one in attributes_of(request.subgroups) if not request.of_site or one.column in columns]


def _read_subgroups(request: Request, table: "DataFrame") -> tuple[dict[str, Words], list[Note]]:
    """Return the subgroup of each row, by attribute, and notes on values that are nearly alike.

    Raises
    ------
    UserError
        When the values do not fit, or a comparison divides nothing; at a site it may.
    """
    found, notes = {}, []
    for one in _attributes_in(request, table.columns):
        refuse_nested(table[one.column], SUBGROUPS)
        words = one.of(table[one.column], as_text(table[one.column]).astype(str))
        distinct = sorted({*words.tolist()} - {NONE})
        if one.sign and not request.of_site and len(distinct) < 2:
            holds = "every" if str(one) in distinct else "no"
            wanted = f"a comparison that holds for some rows only: {str(one)!r} does for {holds} one"
            raise not_allowed(SUBGROUPS, request.subgroups, wanted)
        if same := alike(distinct):
            said = (
                f"{listed(same)} in {str(one)!r} differ only in case or blanks, and are different subgroups"
            )
            notes.append(Note("examples", said))
        found[str(one)] = words
    return found, notes
