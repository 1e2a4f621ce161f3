"""Which runs are meant: ``strategy=fedyogi and accuracy>0.9``."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ..config.help import as_text
from ..core.errors import UserError
from ..names import short

Values = Mapping[str, object]
"""A run's keys and figures by name."""
Test = Callable[[Values], bool]

SIGNS = ("=", "!=", "<=", ">=", "<", ">")
COMPARE = (operator.eq, operator.ne, operator.le, operator.ge, operator.lt, operator.gt)
OPERATORS: Mapping[str, Callable[[float, float], bool]] = dict(zip(SIGNS, COMPARE, strict=True))
CONTAINS, SAME, OTHER = "~", "=", "!="
TOKEN = re.compile(r"""\s*(?:([()])|(!=|<=|>=|[=<>~])|"([^"]*)"|'([^']*)'|([^\s()=<>!~"']+))""")
WORDS = ("and", "or", "not")
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
        parser = _Parser(text)
        return cls(parser.whole(), parser.keys)


class _Parser:
    """Recursive descent: ``or`` binds least, then ``and``, which may be left out, then ``not``."""

    def __init__(self, text: str) -> None:
        self.text, self.keys = text, set[str]()
        self.tokens = [*self._tokens(), ("end", "")]

    def _tokens(self) -> Iterator[tuple[str, str]]:
        place = 0
        while self.text[place:].strip():
            if not (found := TOKEN.match(self.text, place)):
                raise self._error(self.text[place:])
            place = found.end()
            mark, sign, *quoted, word = found.groups()
            text = next((text for text in (mark, sign, *quoted, word) if text is not None), "")
            yield mark or (word if word in WORDS else "") or ("sign" if sign else "value"), text

    def _error(self, at: str) -> UserError:
        place = at.strip() or "its end"
        return UserError(f"where: {self.text!r} is not allowed at {place!r}; expected {FORM}")

    def _take(self, *kinds: str) -> str | None:
        """Return the next token's text and go on, if it is of one of these kinds."""
        return self.tokens.pop(0)[1] if self.tokens[0][0] in kinds else None

    def _need(self, kind: str) -> str:
        if (found := self._take(kind)) is None:
            raise self._error(self.tokens[0][1])
        return found

    def whole(self) -> Test:
        test = self._either()
        self._need("end")
        return test

    def _either(self) -> Test:
        tests = [self._all()]
        while self._take("or"):
            tests.append(self._all())
        return lambda values: any(test(values) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._take("and") or self.tokens[0][0] in ("value", "not", "("):
            tests.append(self._one())
        return lambda values: all(test(values) for test in tests)

    def _one(self) -> Test:
        if self._take("not"):
            negated = self._one()
            return lambda values: not negated(values)
        if self._take("("):
            inner = self._either()
            self._need(")")
            return inner
        word = self._need("value")
        if (sign := self._take("sign")) is None:
            return lambda values: any(word.lower() in as_text(value).lower() for value in values.values())
        self.keys.add(word)
        return _comparison(word, sign, self._need("value"))


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
            return OPERATORS[sign](number, limit)
        return sign in (SAME, OTHER) and (wanted in (text, short(text))) == (sign == SAME)

    return holds
