"""The names that a run's tables have for themselves: what a client reports may have none of them."""

VALIDATION, TEST = "val", "test"
"""The held-out splits; where a round is evaluated on both, ``test-`` begins the names of the second's."""
ROUND_COLUMNS = ("round", "seconds", "replies", "failures")
"""What ``metrics.csv`` begins with."""
COSTS = ("train-seconds", "evaluate-seconds", "server-seconds", "bytes-sent", "bytes-received")
CLIENT_COLUMNS = ("round", "phase", "partition")
"""What ``clients.csv`` begins with."""
GLOBAL, CLIENT_MEAN = "global-", "client-mean-"
WORST, WORST_TENTH, DEVIATION = "worst-client-", "worst-tenth-", "client-std-"
"""What the names of figures begin with that are not a client's own."""
