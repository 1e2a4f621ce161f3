"""What was probably meant by a name that is not known: by meaning, and then by spelling."""

import difflib
import re
from collections.abc import Iterable

MEANT = {
    "local-epochs": "epochs num-epochs client-epochs e",
    "client-lr": "lr learning-rate client-learning-rate eta-l",
    "server-lr": "server-learning-rate eta global-lr",
    "client-momentum": "momentum",
    "client-optimizer": "optimizer optim",
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
    "holdout-clients": "held-out-clients new-clients",
    "strategy": "algorithm aggregator aggregation",
    "model": "network net architecture arch",
    "dataset": "data data-dir data-path csv",
    "run-dir": "output output-dir out-dir save-dir log-dir",
    "seed": "random-seed random-state",
    "mu": "proximal-mu",
    "beta-1": "beta1",
    "beta-2": "beta2",
}
"""Words by which others call a key."""

_KEYS = {word: key for key, words in MEANT.items() for word in words.split()}
_PRIVACY = "differential privacy is for your own ServerApp: see docs/algorithms.md"
_MEDIAN = "strategy fedavg with mean median"
SENTENCES = {
    "epsilon": f"that of FedAdam and FedYogi is tau; {_PRIVACY}",
    "eps": f"that of FedAdam and FedYogi is tau; {_PRIVACY}",
    "delta": _PRIVACY,
    "noise-multiplier": _PRIVACY,
    "dp": _PRIVACY,
    "fedmedian": _MEDIAN,
    "median": _MEDIAN,
    "fedtrimmedavg": "strategy fedavg with mean trimmed",
}
"""What is no other name, in words."""


def hint(name: str, known: Iterable[str], mark: str = "") -> str:
    """Return what may have been meant by a name, in brackets after a space; empty where nothing is near.

    Parameters
    ----------
    name : str
        What was given, and is none of ``known``.
    known : Iterable[str]
        What could have been meant.
    mark : str
        What stands before each in the message, as ``--`` before a flag.
    """
    names = {_plain(one): one for one in known}
    word = _plain(name)
    near = [word] if word in names else [_KEYS[word]] if _KEYS.get(word) in names else []
    if not near and word in SENTENCES:
        return f" ({SENTENCES[word]})"
    near = near or difflib.get_close_matches(word, names, n=1)
    told = f"{mark}{names[near[0]]}" if near else ""
    return "" if not near else f" (did you mean {told if mark else repr(told)}?)"


def _plain(name: str) -> str:
    """A name without what people write in different ways: capitals, and what joins words."""
    return re.sub(r"[\s_-]+", "-", name.strip().lower())
