"""Reserved column names of a run's tables: no metric of a client may have one. What is held out, by name."""

from enum import Enum


class HeldOut(Enum):
    """A way in which data are held out.

    Parameters
    ----------
    key : str
        The run's key that asks for it.
    data : str
        Which data these are.
    decided_by : str
        Who or what decides which.
    serves : str
        What for.
    file, column : str
        Where what was found of them stands, or which of them they are.
    splits : tuple[str, ...]
        What a client's rows of it are called in messages; metrics of a split beside another begin with it.
    one : str
        The key that says which of several runs one is.
    """

    TEST = (
        "dataset",
        "the test set",
        "the data; where they have none, a fixed fifth of each site and outcome",
        "the final figures",
        *("metrics.csv", "client-mean-accuracy"),
        ("test",),
    )
    LATER = (
        "split-by",
        "rows of a table from a number or date on, as the test set",
        "you, by a column",
        "figures of what came later",
        *("metrics.csv", "client-mean-accuracy"),
    )
    FOLDS = (
        "folds",
        "one of K parts of each client's examples, as the test set, in each of K runs",
        "the seed, by outcome and group",
        "figures in which each example counts once",
        *("predictions.parquet", "fold"),
        (),
        "fold",
    )
    VALIDATION = (
        "val-fraction",
        "a share of each client's training examples",
        "the seed, by group",
        "choosing rounds and rates, an early end, fitting `recalibrate`; the test set is kept for the end",
        *("metrics.csv", "test-accuracy"),
        ("val",),
    )
    HALVES = (
        "best",
        "two halves of each client's test examples, with `cross-fitted`",
        "the seed, by outcome and group",
        "each half chooses the round in which the other is reported",
        *("summary.json", "cross-fitted"),
        ("half-1", "half-2"),
    )
    CLIENTS = (
        "holdout-clients",
        "all examples of some clients, which never train",
        "the seed",
        "figures of new clients",
        *("predictions.parquet", "new"),
    )
    SITE = (
        "leave-one-site-out",
        "all examples of one site, in a run for each",
        "you, or each site in turn",
        "figures of a new site",
        *("summary.json", "new-clients"),
        (),
        "left-out",
    )

    def __init__(
        self,
        key: str,
        data: str,
        decided_by: str,
        serves: str,
        file: str,
        column: str,
        splits: tuple[str, ...] = (),
        one: str = "",
    ) -> None:
        self.key, self.data, self.decided_by, self.serves = key, data, decided_by, serves
        self.file, self.column, self.splits, self.one = file, column, splits, one


TRAIN, (VALIDATION,), (TEST,) = "train", HeldOut.VALIDATION.splits, HeldOut.TEST.splits
"""The splits, the last two held out. If a round is evaluated on both, test metrics have the prefix
``test-``."""
RECALIBRATED = "recalibrated"
"""What metrics, states and columns of scores begin with that a site has recalibrated."""
HALVES = HeldOut.HALVES.splits
"""The splits of ``best cross-fitted``: halves of each client's test examples."""
HELD_OUT = ("", f"{TEST}-", f"{RECALIBRATED}-", *(f"{half}-" for half in HALVES))
"""The prefixes of held-out metrics, by split; all but the first are of the test set."""
COSTS = ("train-seconds", "evaluate-seconds", "server-seconds", "bytes-sent", "bytes-received")
CLIENT_LR, SERVER_LR = "client-lr", "server-lr"
RATES = (CLIENT_LR, SERVER_LR)
"""The learning rates of a round, if they have a schedule."""
SECONDS, SIMULATED_SECONDS = "seconds", "simulated-seconds"
"""Of a round, on the real clock; and since the run began, on the clock of its devices, if they are named."""
ROUND_COLUMNS = ("round", SECONDS, "replies", "failures")
"""The first columns of ``metrics.csv``."""
STALENESS = "staleness"
"""Of a client's answer under an asynchronous protocol: how many updates old the model was that it trained."""
STALENESS_OF_ROUND = (f"{STALENESS}-mean", f"{STALENESS}-max")
PRIVACY = ("epsilon", "noise-std", "clip-norm")
"""Of a round with differential privacy: epsilon so far, the deviation of the noise on each entry of the mean
update, and the bound on a client's update."""
ATTACKER, ATTACKERS = "attacker", "attackers"
"""Whether a client that trained attacked; and how many of a round did, of those whose answers were used."""
ATTACK_SUCCESS, PATCHED = "attack-success", "patched"
"""The share of patched examples, of other classes, that the model takes for the backdoor's; their split."""
CLIENT_COLUMNS = ("round", "phase", "partition")
"""The first columns of ``clients.csv``."""
SITE = "site"
"""The client's name: the next column, where the data have names."""
MODEL = "model"
"""The name of the model that a client trained or evaluated, where the server keeps several."""
GLOBAL, CLIENT_MEAN, POOLED = "global-", "client-mean-", "pooled-"
CLIENT_MEDIAN = "client-median-"
HONEST = f"honest-{CLIENT_MEAN}"
WORST, WORST_TENTH, DEVIATION = "worst-client-", "worst-tenth-", "client-std-"
"""Prefixes of metrics that are not those of one client."""


def without_prefixes(name: str) -> str:
    """Return a metric's name without what says of whom or of which split it is."""
    for prefix in (GLOBAL, CLIENT_MEAN, CLIENT_MEDIAN, POOLED, *HELD_OUT[1:]):
        name = name.removeprefix(prefix)
    return name
