"""Which runs are meant: ``strategy=fedyogi and accuracy>0.9``."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..config.help import as_text
from ..core.errors import UserError, unknown_name
from ..names import short

Values = Mapping[str, object]
"""A run's keys and figures by name."""
Test = Callable[[Values], bool]

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
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

    def check(self, known: Sequence[str]) -> None:
        """Refuse a key that no run has.

        Raises
        ------
        UserError
            With the nearest name that there is.
        """
        for key in sorted(self.keys - {*known}):
            raise unknown_name("where", key, known)


class _Parser:
    """Recursive descent: ``or`` binds least, then ``and``, which may be left out, then ``not``."""

    def __init__(self, text: str) -> None:
        self.text, self.keys = text, set[str]()
        self.tokens = [*self._tokens(), ("end", "")]

    def _tokens(self) -> Iterator[tuple[str, str]]:
        place = 0
        while self.text[place:].strip():
            if not (found := TOKEN.match(self.text, place)):
                raise self._error(self.text[place:].strip())
            place = found.end()
            bracket, sign, *quoted, word = found.groups()
            if bracket or word in WORDS:
                yield bracket or word, ""
            else:
                yield ("sign", sign) if sign else ("value", next(v for v in (*quoted, word) if v is not None))

    def _error(self, at: str) -> UserError:
        return UserError(f"where: {self.text!r} is not allowed at {at or 'its end'!r}; expected {FORM}")

    def _take(self, kind: str) -> str | None:
        """Return the next token's text and go on, if it is of that kind."""
        if self.tokens[0][0] != kind:
            return None
        return self.tokens.pop(0)[1]

    def whole(self) -> Test:
        test = self._either()
        if self._take("end") is None:
            raise self._error(self.tokens[0][1] or self.tokens[0][0])
        return test

    def _either(self) -> Test:
        tests = [self._all()]
        while self._take("or") is not None:
            tests.append(self._all())
        return lambda values: any(test(values) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._take("and") is not None or self.tokens[0][0] in ("value", "not", "("):
            tests.append(self._one())
        return lambda values: all(test(values) for test in tests)

    def _one(self) -> Test:
        if self._take("not") is not None:
            negated = self._one()
            return lambda values: not negated(values)
        if self._take("(") is not None:
            inner = self._either()
            if self._take(")") is None:
                raise self._error(self.tokens[0][1])
            return inner
        if (word := self._take("value")) is None:
            raise self._error(self.tokens[0][1] or self.tokens[0][0].replace("end", ""))
        if (sign := self._take("sign")) is None:
            return lambda values: any(word.lower() in as_text(value).lower() for value in values.values())
        if (wanted := self._take("value")) is None:
            raise self._error(self.tokens[0][1])
        self.keys.add(word)
        return self._comparison(word, sign, wanted)

    def _comparison(self, key: str, sign: str, wanted: str) -> Test:
        """Compare as numbers if both are, else as texts; what a run lacks differs from everything."""
        limit = number_in(wanted)
        if limit is None and sign not in (SAME, OTHER, CONTAINS):
            raise UserError(f"where: {key}{sign}{wanted!r} is not allowed; expected a number after {sign!r}")

        def holds(values: Values) -> bool:
            if (value := values.get(key)) is None:
                return sign == OTHER
            text = as_text(value)
            if sign == CONTAINS:
                return wanted.lower() in text.lower()
            number = number_in(value)
            if number is not None and limit is not None:
                return OPERATORS[sign](number, limit)
            return sign in (SAME, OTHER) and (wanted in (text, short(text))) == (sign == SAME)

        return holds
