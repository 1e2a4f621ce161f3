"""Text for people, from data that anybody may have written."""


def visible(text: str) -> str:
    """Return a text in which characters that are not seen, such as a terminal's escapes, are spelt out.

    >>> visible("benign\\x1b[2J")
    'benign\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
