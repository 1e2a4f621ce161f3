"""Tables in a terminal that is narrow: names lose their middle, but never what tells two of them apart."""

import re
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

NARROWEST = 8  # characters to which names are shortened
BETWEEN = 3  # characters that a column takes beside its text
CUT = "…"
BETWEEN_WORDS = " -_=/"
NUMBER = re.compile(r"[-+\d.eE±()%, ]*(of[\d ]+\))?|nan|-?inf")


def fitted(table: Table, width: int) -> Table:
    """Return the same table for a terminal of that width; nothing is left out but the middle of names."""
    cells = [[Text.from_markup(str(cell)).plain for cell in column.cells] for column in table.columns]
    headers = [Text.from_markup(str(column.header)).plain for column in table.columns]
    words = [max(map(len, header.split()), default=0) for header in headers]
    widths = [max(map(len, [*column, " " * n])) for column, n in zip(cells, words, strict=True)]
    names = [i for i, column in enumerate(cells) if not all(NUMBER.fullmatch(text) for text in column)]
    while sum(widths) + BETWEEN * len(widths) + 1 > width:
        widest = max(names, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    found = Table(title=table.title, caption=table.caption, box=table.box)
    found.caption_justify = table.caption_justify
    for column, header in zip(table.columns, headers, strict=True):
        found.add_column(Text(header), justify=column.justify, overflow="fold")
    shortened = [
        without_middle(column, widths[i]) if i in names else column for i, column in enumerate(cells)
    ]
    for row in zip(*shortened, strict=True):
        found.add_row(*map(Text, row))
    return found


def without_middle(texts: Sequence[str], width: int) -> list[str]:
    """Return each text in ``width`` characters, or in as few more as keep different ones different."""
    different = len(set(texts))
    for wide in range(max(width, 3), max(map(len, texts), default=0)):
        long = sorted({text for text in texts if len(text) > wide})
        kept = wide - len(CUT)
        heads = sorted(range(-(-kept // 4), kept - kept // 4), key=lambda head: abs(2 * head - kept))
        middle, *others = [{text: _cut(text, head, kept - head) for text in long} for head in heads]
        for shorter in (middle, _around_differences(long, wide), *others):
            found = [shorter.get(text, text) for text in texts]
            if len(set(found)) == different and max(map(len, found)) <= wide:
                return found
    return list(texts)


def _around_differences(texts: Sequence[str], width: int) -> dict[str, str]:
    """Cut what all begin with and what all end with, between words, and keep what is between them."""
    begins = _alike(texts)
    begins = max(texts[0].rfind(mark, 0, begins) for mark in BETWEEN_WORDS) + 1
    ends = _alike([text[:begins:-1] for text in texts])
    last = texts[0][len(texts[0]) - ends :]
    found = [place for mark in BETWEEN_WORDS if (place := last.find(mark)) >= 0]
    ends = len(last) - min(found) if found else 0
    longest = max(len(text) - begins - ends for text in texts)
    kept = max(0, width - longest - 2 * len(CUT))
    head, tail = min(begins, kept // 2), min(ends, kept - kept // 2)
    return {
        text: _cut(text[:begins], head, 0) + text[begins : len(text) - ends] + _cut(last[-ends:], 0, tail)
        for text in texts
    }


def _alike(texts: Sequence[str]) -> int:
    """With how many characters all begin."""
    places = enumerate(zip(*texts, strict=False))
    return next((i for i, letters in places if len(set(letters)) > 1), min(map(len, texts)))


def _cut(text: str, head: int, tail: int) -> str:
    """Its first and last characters; the whole where nothing would be left out."""
    return text if head + tail >= len(text) else text[:head] + CUT + text[len(text) - tail :]
