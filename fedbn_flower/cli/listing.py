"""Every name that a run can be given, with what it is and what it is for."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

from fedbn_flower.strategies.aggregation.buffers import PROTOCOLS
from fedbn_flower.strategies.aggregation.named_means import MEANS

from ..config.help import first_line
from ..config.named_algorithms import EXTENSION, REGISTRIES
from ..core.errors import UserError, unknown_name
from ..core.methods import GROUPS, PURPOSES, paper_of, purposes_of
from ..core.text import DATASET, PARTITION, UNION
from ..extensions.annex_keys import ATTACKS
from ..models.named import MODEL, NORM
from ..names import COMPRESS, METRIC, PROBLEM, SELECTION, Registry
from ..results.report.citations import authors_and_year
from .argument_parser import Parser

KINDS: tuple[Registry[Any], ...] = (
    *REGISTRIES,
    PROBLEM,
    METRIC,
    MODEL,
    NORM,
    SELECTION,
    COMPRESS,
    EXTENSION,
)
"""What a run can choose by name."""
NAMES: Mapping[str, Mapping[str, Any]] = {
    **{kind.key: kind.names for kind in KINDS},
    "mean": MEANS,
    "protocol": PROTOCOLS,
    "attack": ATTACKS,
}
"""The names of each kind, also of those whose names have arguments of their own."""
WITH_PURPOSE = (*(registry.key for registry in REGISTRIES), NORM.key, SELECTION.key, "mean", "protocol")
"""The kinds whose classes say what they are for."""
ALL = "all"
WIDTH = 100
MORE = f"""\
--list fedavg         what it is for; --long adds formulas
--list strategy       those of a kind, with what they are for
--list {ALL}            everything
--list label-skew     those for a situation: """
FORMS = {"client": UNION, "dataset": DATASET, "partition": PARTITION}
"""What is no name, but is made of names and arguments."""


class Row(NamedTuple):
    """A line of the list; one of `FORMS` has no name."""

    kind: str
    name: str
    described: Any = None

    @property
    def purposes(self) -> tuple[str, ...]:
        return purposes_of(self.described) if self.kind in WITH_PURPOSE and self.name else ()

    def matches(self, word: str) -> bool:
        """Whether a word is its kind, its name, one of its purposes or a group of them."""
        groups = (group for group, purposes in GROUPS.items() if not {*purposes}.isdisjoint(self.purposes))
        return word in {self.kind, self.name, *self.purposes, *groups}

    def words(self, long: bool = False) -> str:
        """What it is for, or its formula if ``long``."""
        if not self.name:
            return FORMS[self.kind]
        what = first_line(self.described)
        return what if long else vars(self.described).get("purpose") or what

    def words_and_paper(self, long: bool) -> str:
        """The same as plain text, with the authors and the year of its paper."""
        words, key = self.words(long).replace("``", ""), paper_of(self.described) if self.name else ""
        paper = authors_and_year(key) if key else ""
        return words if paper in words else f"{words.removesuffix('.')} ({paper})."


def rows() -> list[Row]:
    """Return a row for each name, by kind."""
    return [Row(kind, name, described) for kind, names in NAMES.items() for name, described in names.items()]


def listed(words: Sequence[str] = (), long: bool = False) -> str:
    """Return the text of ``--list``: methods under each of their purposes, then everything else by kind.

    Parameters
    ----------
    words : Sequence[str]
        Kinds, purposes, groups of purposes or names: what is shown matches all of them.
    long : bool
        Whether to show formulas.

    Raises
    ------
    UserError
        For another word, and for words that nothing matches together.
    """
    everything = [*rows(), *(Row(kind, "") for kind in FORMS)]
    for word in words:
        if not any(row.matches(word) for row in everything):
            allowed = {*NAMES, *FORMS, *PURPOSES, *GROUPS}
            raise unknown_name("list", word, allowed, "a name that --list shows")
    shown = [row for row in everything if all(map(row.matches, words))]
    if not shown:
        raise UserError(f"list: {' '.join(words)!r} is not allowed; nothing is all of these")
    asked = {purpose for word in words for purpose in GROUPS.get(word, (word,))} & {*PURPOSES} or {*PURPOSES}
    sections = [
        (f"{purpose}: {situation}\n", [row for row in shown if purpose in row.purposes])
        for purpose, situation in PURPOSES.items()
        if purpose in asked
    ]
    others = [row for row in shown if not row.purposes]
    sections += [("", [row for row in others if row.name and row.kind == kind]) for kind in NAMES]
    sections += [("", [row for row in others if not row.name])]
    width = max(len(row.name) for row in shown)
    return "\n\n".join(title + _lines(found, width, long) for title, found in sections if found)


def _lines(found: Sequence[Row], width: int, long: bool) -> str:
    names = [f" {row.name:<{width}}" if row.name else "" for row in found]
    return "\n".join(
        f"{row.kind:<10}{name} {row.words_and_paper(long)}" for row, name in zip(found, names, strict=True)
    )


def show(arguments: Sequence[str]) -> None:
    """Print what the words after ``--list`` ask for; flags of runs beside it are not looked at.

    Raises
    ------
    UserError
        As of `listed`.
    """
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--list", nargs="*")
    parser.add_argument("--long", action="store_true")
    known, _ = parser.parse_known_args(arguments)
    words = [word.lower() for word in known.list if word.lower() != ALL]
    print(listed(words, known.long) if known.list or known.long else overview())


def overview() -> str:
    """Return where to begin, every name by kind, and how to see more."""
    names = {kind: ", ".join(found) for kind, found in NAMES.items()}
    forms = {kind: FORMS[kind] for kind in FORMS if kind not in NAMES}
    every = [
        fill(text, WIDTH, initial_indent=f"{kind:<10} ", subsequent_indent=" " * 11, break_on_hyphens=False)
        for kind, text in (names | forms).items()
    ]
    return "\n\n".join(
        [listed(["baseline"]), "\n".join(["every name", *every]), f"{MORE}{', '.join(PURPOSES)}"]
    )
