"""Fit tables into a narrow terminal: wrap sentences and names of several words, shorten other names in the
middle, but keep different names different.
"""

import re
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

WHOLE = 10_000
"""Characters of a line that nobody reads in a terminal."""
MIN_WIDTH = 8  # characters below which names are not shortened
PADDING = 3  # characters of a column besides its text
CUT = "…"
WORD_BREAKS = " -_=/"
HEADER_PIECE = re.compile(r"[^\s-]*-|[^\s-]+")
PIECE = re.compile(r"[^\s|,;/]*[|,;/]?\s*")
"""What stays together in a sentence whose words are longer than a line, as lists without blanks are."""
NUMBER = re.compile(r"[-+\d.eE±()%, ]*(of[\d ]+\))?( \*)?|nan|-?inf")


def is_narrow(console: Console) -> bool:
    """Whether lines have to fit a width: not those of a file or a pipe."""
    return console.is_terminal or console.is_jupyter


def show(console: Console, table: Table) -> None:
    """Print a table: fitted to a terminal's width, in a file or a pipe as wide as it is."""
    if is_narrow(console):
        console.print(fit_to_width(table, console.width))
    else:
        Console(file=console.file, quiet=console.quiet, width=WHOLE, emoji=False).print(table)


def fit_to_width(table: Table, width: int) -> Table:
    """Return the table fitted to a terminal's width; only the middle of long words is left out.

    Headers wrap after hyphens, too. Of columns whose overflow is ``fold`` nothing is left out.
    """
    cells = [[_plain(cell) for cell in column.cells] for column in table.columns]
    headers = [_plain(column.header) for column in table.columns]
    words = [max(map(len, HEADER_PIECE.findall(header)), default=0) for header in headers]
    widths = [max(map(len, [*column, " " * n])) for column, n in zip(cells, words, strict=True)]
    names = [i for i, column in enumerate(cells) if not all(NUMBER.fullmatch(text) for text in column)]
    while sum(widths) + PADDING * len(widths) + 1 > width:
        widest = max(names, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= MIN_WIDTH:
            break
        widths[widest] -= 1
    found = Table(title=table.title, caption=table.caption, box=table.box)
    found.caption_justify = table.caption_justify
    for column, header, columns in zip(table.columns, headers, widths, strict=True):
        found.add_column(Text(_wrapped(header, columns)), justify=column.justify, overflow="fold")
    shortened = [
        _fitted(column, widths[i], table.columns[i].overflow == "fold") if i in names else column
        for i, column in enumerate(cells)
    ]
    for row in zip(*shortened, strict=True):
        found.add_row(*map(Text, row))
    return found


def _plain(cell: object) -> str:
    return Text.from_markup(str(cell), emoji=False).plain


def _fitted(texts: Sequence[str], width: int, whole: bool) -> list[str]:
    """Return texts of a column, wrapped between their words; where one does not fit, all are shortened.

    As a ``whole``, long words are broken instead.
    """
    if max((len(word) for text in texts for word in text.split()), default=0) <= width:
        return [_wrapped(text, width) for text in texts]
    return [_broken(text, width) for text in texts] if whole else shorten_middle(texts, width)


def _broken(text: str, width: int) -> str:
    """Return a text wrapped after blanks, commas and bars, and anywhere in what is longer than a line."""
    lines = [""]
    for piece in PIECE.findall(text):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(line.rstrip() for line in lines)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, max(width, 1), break_long_words=False))


def shorten_middle(texts: Sequence[str], width: int) -> list[str]:
    """Return each text in ``width`` characters, or in as few more as keep different texts different."""
    different = len(set(texts))
    for length in range(max(width, 3), max(map(len, texts), default=0)):
        long = sorted({text for text in texts if len(text) > length})
        kept = length - len(CUT)
        heads = sorted(range(-(-kept // 4), kept - kept // 4), key=lambda head: abs(2 * head - kept))
        middle, *others = [{text: _cut(text, head, kept - head) for text in long} for head in heads]
        for shorter in (middle, _around_differences(long, length), *others):
            found = [shorter.get(text, text) for text in texts]
            if len(set(found)) == different and max(map(len, found)) <= length:
                return found
    return list(texts)


def _around_differences(texts: Sequence[str], width: int) -> dict[str, str]:
    """Cut the common prefix and suffix at word breaks, and keep what lies between them."""
    begins = _common_prefix_length(texts)
    begins = max(texts[0].rfind(mark, 0, begins) for mark in WORD_BREAKS) + 1
    ends = _common_prefix_length([text[:begins:-1] for text in texts])
    last = texts[0][len(texts[0]) - ends :]
    found = [place for mark in WORD_BREAKS if (place := last.find(mark)) >= 0]
    ends = len(last) - min(found) if found else 0
    longest = max(len(text) - begins - ends for text in texts)
    kept = max(0, width - longest - 2 * len(CUT))
    head, tail = min(begins, kept // 2), min(ends, kept - kept // 2)
    return {
        text: _cut(text[:begins], head, 0) + text[begins : len(text) - ends] + _cut(last[-ends:], 0, tail)
        for text in texts
    }


def _common_prefix_length(texts: Sequence[str]) -> int:
    """Return the number of characters with which all texts begin."""
    places = enumerate(zip(*texts, strict=False))
    return next((i for i, letters in places if len(set(letters)) > 1), min(map(len, texts)))


def _cut(text: str, head: int, tail: int) -> str:
    """Return the text's first and last characters; the whole text if nothing would be left out."""
    return text if head + tail >= len(text) else text[:head] + CUT + text[len(text) - tail :]
