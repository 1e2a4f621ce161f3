"""Reserved column names of a run's tables: no metric of a client may have one of them."""

TRAIN, VALIDATION, TEST = "train", "val", "test"
"""The splits, the last two held out. If a round is evaluated on both, test metrics have the prefix
``test-``."""
RECALIBRATED = "recalibrated"
"""What metrics, states and columns of scores begin with that a site has recalibrated."""
HALVES = ("half-1", "half-2")
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
