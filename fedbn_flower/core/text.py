"""Text for people: what anybody may have written, lists, commands, the syntax of some keys, and hints."""

import difflib
import re
import shlex
import sys
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
    "columns with commas, or comparisons of them with a number, a date or a word: sex,age>=65,smoker==yes"
)
"""What ``--subgroups`` takes, see `data.subgroups`."""


SYNONYMS = {
    "local-epochs": "epochs num-epochs client-epochs e",
    "client-lr": "lr learning-rate client-learning-rate eta-l",
    "server-lr": "server-learning-rate eta global-lr",
    "client-lr-schedule": "lr-schedule lr-scheduler scheduler schedule",
    "client-momentum": "momentum",
    "client-optimizer": "optimizer optim local-optimizer",
    "weight-decay": "wd l2",
    "clip-norm": "clip grad-clip clip-grad max-grad-norm gradient-clipping",
    "batch-size": "bs batch b",
    "device": "gpu gpus num-gpus cuda accelerator",
    "workers": "threads jobs cpus num-cpus num-workers",
    "patience": "early-stopping early-stop",
    "rounds": "num-rounds server-rounds num-server-rounds communication-rounds t",
    "num-clients": "clients n-clients nodes num-nodes supernodes num-supernodes k",
    "fraction-train": "fraction-fit client-fraction participation sample-fraction c",
    "fraction-evaluate": "fraction-eval",
    "partition": "split non-iid iid partitioner",
    "val-fraction": "validation-split val-split",
    "norm": "normalization normalisation norm-layer",
    "bn-momentum": "batchnorm-momentum batch-norm-momentum",
    "agc": "adaptive-clip adaptive-gradient-clipping agc-clip",
    "adapt-bn": "adabn ada-bn",
    "holdout-clients": "held-out-clients new-clients",
    "strategy": "algorithm aggregator aggregation",
    "model": "network net architecture arch",
    "dataset": "data data-dir data-path csv",
    "run-dir": "output output-dir out-dir save-dir log-dir",
    "seed": "random-seed random-state",
    "mu": "proximal-mu",
    "dp-delta": "delta",
    "dp-noise": "noise-multiplier noise",
    "dp-clip": "clipping-norm l2-norm-clip",
    "beta-1": "beta1",
    "beta-2": "beta2",
}
"""Other names in use for a key, separated by spaces."""

_KEYS = {word: key for key, words in SYNONYMS.items() for word in words.split()}
_EPSILON = "FedAdam and FedYogi call it tau; of differential privacy it is dp-epsilon"
_MEDIAN = "strategy fedavg with mean median"
ADVICE = {
    "epsilon": _EPSILON,
    "eps": _EPSILON,
    "fedmedian": _MEDIAN,
    "median": _MEDIAN,
    "fedtrimmedavg": "strategy fedavg with mean trimmed",
}
"""What to use instead, where that is not one key."""


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
