"""Text for people: what anybody may have written, lists, commands, the syntax of some keys, and hints."""

import difflib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path


def visible(text: str) -> str:
    """Return a text in which characters that are not seen, such as a terminal's escapes, are spelt out.

    >>> visible("benign\\x1b[2J")
    'benign\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listed(words: Sequence[str], most: int) -> str:
    """Return words with commas between them: the first ``most``, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Return words with commas between them, and another word before the last one."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def number_of(count: int, thing: str) -> str:
    """Return how many things there are.

    >>> number_of(0, "row"), number_of(1, "row"), number_of(2, "row")
    ('0 rows', '1 row', '2 rows')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in one of three units.

    >>> duration(45.04), duration(89.9), duration(90), duration(5399), duration(5400)
    ('45 s', '89.9 s', '2 min', '90 min', '1.5 h')
    """
    longer = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"{seconds:.3g} s" if seconds < 90 else longer


def are(count: int) -> str:
    """Return the verb of so many things: ``1 row is``, ``2 rows are``."""
    return "is" if count == 1 else "are"


def quoted(words: Sequence[str], most: int) -> str:
    """Return words as `listed` does, in quotes."""
    return listed([repr(word) for word in words], most)


def command(arguments: Iterable[str]) -> str:
    """Return the command that runs this program with other arguments.

    It begins with ``python run_sim.py`` or ``fedbn-sim``, whichever was started.
    """
    script = sys.argv[0]
    program = ["python", script] if script.endswith(".py") else [Path(script).name]
    return shlex.join([*program, *arguments])


DATASET = (
    "scanners and digits (embedded), a local folder or table, text:FILE, tokens:TOKENIZER.json:FILE, "
    "synthetic:ALPHA,BETA, quadratic:DIM, or any Hugging Face name"
)
PARTITIONER = "CLASSPartitioner:KEY=VALUE,..."
PARTITION = (
    "iid, dirichlet:ALPHA, shards:PER_CLIENT, pathological:CLASSES_PER_CLIENT, natural:COLUMN, "
    f"silos, silos:0-4,5-9 or {PARTITIONER}"
)
UNION = "NAME+NAME: keeps at home what either does, with the methods of both, as in fedbn+fedper"

GROUPS = "a column, or name=PATTERN with a regular expression that has one group"
"""What ``--group-column`` takes, see `data.groups`."""

SPLIT_BY = "COLUMN<VALUE with a number or a date such as 2024-01-31"
"""What ``--split-by`` takes, see `data.split_by`."""

SUBGROUPS = (
    "columns with commas, or comparisons of them with a number, a date such as 2024-01-31 or a word: "
    "sex,age>=65,smoker==yes"
)
"""What ``--subgroups`` takes, see `data.subgroups`."""

_OTHER_NAMES = tomllib.loads(Path(__file__).with_name("other_names.toml").read_text())
SYNONYMS: dict[str, str] = _OTHER_NAMES["synonyms"]
ADVICE: dict[str, str] = _OTHER_NAMES["advice"]
_KEYS = {word: key for key, words in SYNONYMS.items() for word in words.split()}


def hint(name: str, known: Iterable[str], mark: str = "") -> str:
    """Return a suggestion for an unknown name, as `` (did you mean ...?)``; empty if nothing is similar.

    Parameters
    ----------
    name : str
        The unknown name.
    known : Iterable[str]
        The names to suggest from.
    mark : str
        The prefix of a suggested name, such as ``--`` for a flag.
    """
    names = {_normalised(candidate): candidate for candidate in known}
    word = _normalised(name)
    near = [word] if word in names else [_KEYS[word]] if _KEYS.get(word) in names else []
    if not near and word in ADVICE:
        return f" ({ADVICE[word]})"
    near = near or difflib.get_close_matches(word, names, n=1)
    suggested = f"{mark}{names[near[0]]}" if near else ""
    return "" if not near else f" (did you mean {suggested if mark else repr(suggested)}?)"


def _normalised(name: str) -> str:
    """Return a name in lower case, its words joined by hyphens."""
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def in_lower_case(name: str) -> str:
    """Return a column's name in lower case, ``patientID`` as ``patient id``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
