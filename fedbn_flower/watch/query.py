"""Which runs are meant: ``strategy=fedyogi and accuracy>0.9``."""

import ast
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt, ne

from ..config.help import as_text
from ..core.errors import UserError
from ..names import short

Test = Callable[[Mapping[str, object]], bool]
"""Of a run's keys and figures by name."""

OPERATORS = {"=": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
CONTAINS, SAME, OTHER = "~", "=", "!="
QUOTES = "\"'"
WORD = r"(?i:and|or|not)(?=[\s()]|$)"
VALUE = rf"""("[^"]*"|'[^']*'|(?!{WORD})[^\s()=<>!~"']+)"""
TOKEN = re.compile(rf"\s*(?:([()]|{WORD})|{VALUE}(?:\s*(!=|<=|>=|[=<>~])\s*{VALUE})?)")
OPENING, CLOSING = ("and ", "or ", "not ", "( "), ("and", "or", ")")
FORM = "KEY=VALUE with =, !=, <, <=, >, >= or ~ (contains), joined by and, or, not and brackets; or a word"


def number_in(value: object) -> float | None:
    """Return a value as a number, ``90%`` as 0.9; None of what is none."""
    text = as_text(value).strip()
    with suppress(ValueError):
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    return None


@dataclass(frozen=True)
class Query:
    """A filter of runs; an empty one lets all through.

    Attributes
    ----------
    keys : set[str]
        The names of the keys and figures that are compared.
    """

    test: Test = lambda values: True
    keys: set[str] = field(default_factory=set)

    @classmethod
    def parse(cls, text: str) -> "Query":
        """Read a filter.

        Raises
        ------
        UserError
            When it is not of the `FORM`.
        """
        if not text.strip():
            return cls()
        tests, keys, source, at, place = dict[str, Test](), set[str](), "", {0: len(text)}, 0
        while text[place:].strip():
            if not (found := TOKEN.match(text, place)):
                raise _not_read(text, place)
            mark, key, sign, wanted = (group or "" for group in found.groups())
            key, wanted = (word[1:-1] if word[:1] in QUOTES else word for word in (key, wanted))
            mark = mark.lower()
            if not mark:
                tests[f"t{place}"] = _comparison(key, sign, wanted) if sign else _word(key)
                keys |= {key} if sign else set()
            if source and mark not in CLOSING and not source.endswith(OPENING):
                source += "and "  # which may be left out
            at[len(source) + 1] = place
            source += f"{mark or f't{place}'} "
            place = found.end()
        try:
            return cls(_joined(ast.parse(source, mode="eval").body, tests), keys)
        except (SyntaxError, KeyError, RecursionError, MemoryError) as error:
            raise _not_read(text, at.get(getattr(error, "offset", -1) or 0, 0)) from None


def _joined(node: ast.AST, tests: Mapping[str, Test]) -> Test:
    """Return what brackets, ``not``, ``and`` and ``or`` make of tests; they bind as Python's do."""
    if isinstance(node, ast.BoolOp):
        every, found = all if isinstance(node.op, ast.And) else any, [_joined(n, tests) for n in node.values]
        return lambda values: every(test(values) for test in found)
    if isinstance(node, ast.UnaryOp):
        negated = _joined(node.operand, tests)
        return lambda values: not negated(values)
    return tests[getattr(node, "id", "")]


def _not_read(text: str, at: int) -> UserError:
    return UserError(f"where: {text!r} is not allowed at {text[at:].strip() or 'its end'!r}; expected {FORM}")


def _word(word: str) -> Test:
    return lambda values: any(word.lower() in as_text(value).lower() for value in values.values())


def _comparison(key: str, sign: str, wanted: str) -> Test:
    """Compare as numbers if both are, else as texts; what a run lacks differs from everything."""
    limit = number_in(wanted)
    if limit is None and sign not in (SAME, OTHER, CONTAINS):
        raise UserError(f"where: {key}{sign}{wanted!r} is not allowed; expected a number after {sign!r}")

    def holds(values: Mapping[str, object]) -> bool:
        value = values.get(key)
        text, number = as_text(value), number_in(value)
        if value is None:
            return sign == OTHER
        if sign == CONTAINS:
            return wanted.lower() in text.lower()
        if number is not None and limit is not None:
            return bool(OPERATORS[sign](number, limit))
        return sign in (SAME, OTHER) and (wanted in (text, short(text))) == (sign == SAME)

    return holds
