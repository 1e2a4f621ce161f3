"""Which runs are meant: ``strategy=fedyogi and accuracy>0.9``."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt, ne

from ..config.help import as_text
from ..core.errors import UserError
from ..names import short

Values = Mapping[str, object]
"""A run's keys and figures by name."""
Test = Callable[[Values], bool]

OPERATORS = {"=": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
CONTAINS, SAME, OTHER = "~", "=", "!="
QUOTES = "\"'"
VALUE = r"""("[^"]*"|'[^']*'|[^\s()=<>!~"']+)"""
TOKEN = re.compile(rf"\s*(?:([()]|(?:and|or|not)(?=[\s()]|$))|{VALUE}(?:\s*(!=|<=|>=|[=<>~])\s*{VALUE})?)")
FORM = "KEY=VALUE with =, !=, <, <=, >, >= or ~ (contains), joined by and, or, not and brackets; or a word"


def number_in(value: object) -> float | None:
    """Return a value as a number, ``90%`` as 0.9; None of what is none."""
    text = as_text(value).strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
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
        tests, keys, words, place = dict[str, Test](), set[str](), ["("], 0
        while text[place:].strip():
            if not (found := TOKEN.match(text, place)):
                raise _not_read(text, text[place:])
            mark, key, sign, wanted = (group or "" for group in found.groups())
            key, wanted = key.strip(QUOTES), wanted.strip(QUOTES)
            if not mark:
                tests[f"t{place}"] = _comparison(key, sign, wanted) if sign else _word(key)
                keys |= {key} if sign else set()
            if mark not in ("and", "or", ")") and words[-1] not in ("and", "or", "not", "("):
                words.append("and")  # which may be left out
            words.append(mark or f"t{place}")
            place = found.end()
        try:
            return cls(_joined(ast.parse(" ".join([*words, ")"]), mode="eval").body, tests), keys)
        except (SyntaxError, KeyError, RecursionError, MemoryError):
            raise _not_read(text, "its end" if words[-1] in ("and", "or", "not") else text) from None


def _joined(node: ast.AST, tests: Mapping[str, Test]) -> Test:
    """Return what brackets, ``not``, ``and`` and ``or`` make of tests; they bind as Python's do."""
    match node:
        case ast.BoolOp(op, values=parts):
            every, found = all if isinstance(op, ast.And) else any, [_joined(part, tests) for part in parts]
            return lambda values: every(test(values) for test in found)
        case ast.UnaryOp(operand=part):
            negated = _joined(part, tests)
            return lambda values: not negated(values)
    return tests[getattr(node, "id", "")]


def _not_read(text: str, at: str) -> UserError:
    return UserError(f"where: {text!r} is not allowed at {at.strip()!r}; expected {FORM}")


def _word(word: str) -> Test:
    return lambda values: any(word.lower() in as_text(value).lower() for value in values.values())


def _comparison(key: str, sign: str, wanted: str) -> Test:
    """Compare as numbers if both are, else as texts; what a run lacks differs from everything."""
    limit = number_in(wanted)
    if limit is None and sign not in (SAME, OTHER, CONTAINS):
        raise UserError(f"where: {key}{sign}{wanted!r} is not allowed; expected a number after {sign!r}")

    def holds(values: Values) -> bool:
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
