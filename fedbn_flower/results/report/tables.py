"""A table, and its output as HTML, LaTeX, Markdown and terminal text."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.markup import escape as in_markup
from rich.table import Table as TerminalTable

from ...core.errors import unknown_name
from ...core.files import csv_lines
from ...core.text import visible
from ..terminal import PADDING, is_narrow, show
from .html import shown_text

if TYPE_CHECKING:
    from ...core.notes import Note

WORD = 16
"""Characters of a word or a name that a terminal shows at least."""
FEW, SHORT = 3, 40  # columns, and characters of a row of numbers, that fit on a phone
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{character: f"\\{character}" for character in "_%&#${}"},
    }
)


@dataclass(frozen=True)
class Table:
    """Rows of text: the first ``words`` columns hold words, the others numbers.

    ``links`` holds the link of each row's first cell, empty for none. With ``has_sentences`` nothing of a
    word is left out in a terminal. The ``note`` stands below the table in LaTeX and Markdown. Characters of
    names that are not seen are spelt out, see `visible`.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    links: Sequence[str] = field(default=())
    has_sentences: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", list(map(visible, self.header)))
        object.__setattr__(self, "rows", [list(map(visible, row)) for row in self.rows])

    def html(self, best: Collection[int] = ()) -> str:
        """Return the table as HTML; the ``best`` rows are highlighted.

        On a narrow page each row of a table that `_folds` is a list of its columns' names and values.
        """
        head = "".join(f"<th{self._number(i)}>{shown_text(name)}</th>" for i, name in enumerate(self.header))
        links = self.links or [""] * len(self.rows)
        body = "".join(
            ('<tr class="best">' if number in best else "<tr>")
            + "".join(self._cell(i, text, link) for i, text in enumerate(row))
            + "</tr>\n"
            for number, (row, link) in enumerate(zip(self.rows, links, strict=True))
        )
        kinds = {"sentences": self.has_sentences, "folds": self._folds}
        classes = " ".join(name for name, is_one in kinds.items() if is_one)
        opened = f'<table class="{classes}">' if classes else "<table>"
        table = f"{opened}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
        return f'<div class="scroll">{table}</div>\n'

    @cached_property
    def _folds(self) -> bool:
        """Whether it is too wide for a phone: more than `FEW` columns, or numbers with their intervals."""
        longest = sum(max(map(len, column)) for column in zip(*self.rows, strict=True))
        return len(self.header) > FEW or (self.words < len(self.header) and longest > SHORT)

    def _number(self, column: int) -> str:
        return "" if column < self.words else ' class="number"'

    def _cell(self, column: int, text: str, link: str) -> str:
        shown = shown_text(text)
        if link and column == 0:
            shown = f'<a href="{escape(link)}">{shown}</a>'
        name = f' data-column="{shown_text(self.header[column])}"' if column and self._folds else ""
        return f"<td{self._number(column)}{name}>{shown}</td>"

    def latex(self) -> str:
        """Return the table as LaTeX with booktabs rules."""
        columns = "l" * self.words + "r" * (len(self.header) - self.words)
        lines = [" & ".join(text.translate(LATEX) for text in row) + r" \\" for row in self.rows]
        head = " & ".join(text.translate(LATEX) for text in self.header) + r" \\"
        parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule"]
        note = [rf"\par\smallskip{{\footnotesize {self.note.translate(LATEX)}\par}}"] if self.note else []
        return "\n".join([*parts, r"\end{tabular}", *note]) + "\n"

    def markdown(self) -> str:
        """Return the table as GitHub-flavoured Markdown."""
        rule = ["---" if i < self.words else "---:" for i in range(len(self.header))]
        lines = [[text.replace("|", "\\|") for text in row] for row in (self.header, *self.rows)]
        note = f"\n{self.note}\n" if self.note else ""
        return "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]]) + note

    @classmethod
    def of_learnt(cls, learnt: "Iterable[Note]") -> "Table":
        """Return what a run learns as a table; a row's name stands beside its first line."""
        rows: list[list[str]] = []
        for note in learnt:
            repeated = any(row[0] == note.row for row in rows)
            rows.append(["" if repeated else note.row, note.line])
        return cls(["", "what is learnt"], rows, words=2, has_sentences=True)

    def csv(self) -> str:
        """Return the table as CSV."""
        return csv_lines(self.header, self.rows)

    def of_columns(self, names: Sequence[str]) -> "Table":
        """Return the table with these columns, in their order.

        Raises
        ------
        UserError
            For a name that is none of its columns.
        """
        if unknown := [name for name in names if name.strip() not in self.header]:
            raise unknown_name("table", unknown[0], self.header)
        return self._with([list(self.header).index(name.strip()) for name in names])

    def _with(self, kept: Sequence[int]) -> "Table":
        """Return the table with these columns, by their places."""
        rows = [[row[i] for i in kept] for row in self.rows]
        words = sum(i < self.words for i in kept)
        return replace(self, header=[self.header[i] for i in kept], rows=rows, words=words)

    def without_common(self, first: int) -> "Table":
        """Return the table without those of the ``first`` columns that have one value in all rows."""
        kept = [i for i in range(len(self.header)) if i >= first or len({row[i] for row in self.rows}) > 1]
        return self._with(kept)

    def parts(self, width: int, names: int) -> Iterator["Table"]:
        """Yield tables with a part of the columns each, beside the first ``names``, to fit a terminal.

        Of a column of words at least `WORD` characters are shown.
        """
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        longest = [max(map(len, column), default=0) for column in columns]
        least = [
            max([min(size, WORD) if i < self.words else size, *map(len, self.header[i].split())])
            for i, size in enumerate(longest)
        ]
        left = width - 1 - sum(size + PADDING for size in least[:names])
        parts: list[list[int]] = [[]]
        for i in range(names, len(columns)):
            if parts[-1] and sum(least[j] + PADDING for j in [*parts[-1], i]) > left:
                parts.append([])
            parts[-1].append(i)
        for part in parts:
            chosen = [*range(names), *part]
            rows = [[row[i] for i in chosen] for row in self.rows]
            yield Table([self.header[i] for i in chosen], rows, min(self.words, len(chosen)))

    def terminal(self, title: str = "") -> TerminalTable:
        """Return the table for a terminal."""
        table = TerminalTable(title=in_markup(title), box=box.SIMPLE_HEAD)
        for i, name in enumerate(self.header):
            justify: Literal["left", "right"] = "left" if i < self.words else "right"
            overflow: Literal["fold", "ellipsis"] = "fold" if self.has_sentences else "ellipsis"
            table.add_column(in_markup(name), justify=justify, overflow=overflow)
        for row in self.rows:
            table.add_row(*map(in_markup, row))
        return table

    def show(self, console: Console, title: str = "") -> None:
        """Print the table and its note.

        In a terminal it is divided by `parts` beside its columns of words, so that no word is broken; the
        title stands above the first. In a file or a pipe it is as wide as it is.
        """
        names = self.words if self.words < len(self.header) else 1
        for part in self.parts(console.width, names) if is_narrow(console) else [self]:
            show(console, part.terminal(title))
            title = ""
        if self.note:
            console.print(self.note, soft_wrap=True, highlight=False, markup=False, emoji=False)
