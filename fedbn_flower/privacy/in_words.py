"""What is said of a run's privacy: one sentence for one thing, in reports, methods and cards alike.

Each function takes what the run's summary says of its privacy.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from .terms import HYPOTHETICAL, SIMULATED, SUMMED


class Notion(NamedTuple):
    """Who is protected from whom, what is assumed, and how, where clients add the noise."""

    who: str
    whom: str
    assumed: str
    how: str = ""


EACH_CLIENT, THE_SERVER_TOO = "each client with all of its data", "everybody, the server too"
BUT_THE_CLIENT = "everybody but that client, the server too"
AS_IT_IS = "Each client ran this project's code as it is"
COUNTED = f"{AS_IT_IS}. Numbers of {{}} and of steps are public."
OF_STEPS = (
    ": a client needs to trust nobody. In every step each {} was in the batch with the same probability, "
    "drawn in secret by its client. {} was scaled down to a bounded length, and Gaussian noise was added to "
    "their sum. Epsilon is the greatest of the clients', as if each had trained in every round."
)
NOTIONS = {
    "client, central": Notion(
        EACH_CLIENT,
        "everybody but the server",
        "The server is honest, and keeps its updates and its key to itself.",
    ),
    "client, local": Notion(
        EACH_CLIENT,
        THE_SERVER_TOO,
        f"{AS_IT_IS}.",
        ": a client needs to trust nobody. It scaled its update down to a bounded length and added Gaussian "
        "noise to it before it sent anything. Epsilon is that of the client that was asked most often.",
    ),
    SUMMED: Notion(
        EACH_CLIENT,
        THE_SERVER_TOO,
        f"{AS_IT_IS}, and the server added up what it got as agreed. At least {{honest-survivors}} of the "
        "{survivors} clients or more in each sum told nobody their noise.",
        ": it saw masked numbers, and sums of {survivors} clients or more. Each client scaled its update "
        "down to a bounded length and added a share of the noise before it masked. The noise of "
        "{honest-survivors} of them is counted, as if the others had told theirs. With fewer clients a round "
        "had no result. Epsilon is that of the client that was asked most often.",
    ),
    "example, at each client": Notion(
        "each single example of a client",
        BUT_THE_CLIENT,
        COUNTED.format("examples"),
        OF_STEPS.format("example", "Its gradient"),
    ),
    "unit, at each client": Notion(
        "{unit} at a client, together",
        BUT_THE_CLIENT,
        COUNTED.format("units"),
        OF_STEPS.format("unit", "The mean gradient of its rows"),
    ),
}
CLAIMS = {
    SIMULATED: "This epsilon is simulated: the random numbers follow from a public seed, so this run "
    "itself protects nobody. With a secret key it would.",
    HYPOTHETICAL: "This epsilon is hypothetical: it would hold with {accounted-clients-a-round:g} clients "
    "a round of {accounted-clients}, and this run had {clients-a-round:g}. By it this run itself protects "
    "nobody.",
}
NEIGHBOURS = {
    "add-or-remove-one": "a client took part at all",
    "add-or-remove-one-example": "an example was among a client's training data",
    "example-replaced-by-nothing": "an example was among a client's training data, whose number is public",
    "unit-replaced-by-nothing": "a unit was among a client's training data, whose number is public",
    "replace-one": "a client had these data or any others",
}
SAMPLINGS = {
    "poisson": "each client was asked with probability {probability:.4g}, drawn in secret",
    "fixed": "a sample of {clients-a-round:g} clients was asked, drawn in secret",
    "all": "all clients were asked",
    "cyclic": "one of {groups} fixed groups was asked, in turn",
}
ADAPTED = (
    "The bound on an update's length followed the median of the lengths from round to round, by the number "
    "of updates within it. Clients added noise to that number too, in shares: {count-noise:g} is the "
    "deviation of what is counted. Epsilon is that of both."
)
FILES_OUTSIDE = (
    "every file of the run's folder but model.safetensors and privacy.jsonl: metrics.csv, clients.csv, "
    "clients.parquet, failures.csv, classes.csv, partitions.csv, partitions.png, curves.png, "
    "states.safetensors, predictions.parquet, summary.json, report.html, trackers.json with tensorboard and "
    "wandb, and config.json with the digest of the data, the names of clients and classes, and what the run "
    "says that it learns, such as examples by class"
)
"""What the guarantee does not cover, whatever it protects: what is not published by ``fedbn-sim release``."""


def protected(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return who is protected, and from whom."""
    notion = NOTIONS[found["notion"]]
    return notion.who.format(unit=found.get("unit")), notion.whom


def assumed(found: Mapping[str, Any]) -> str:
    """Return what the guarantee assumes."""
    return NOTIONS[found["notion"]].assumed.format(**found)


def at_clients(found: Mapping[str, Any]) -> str:
    """Return how clients were protected that add the noise; empty where the server does."""
    return NOTIONS[found["notion"]].how.format(**found)


def not_held(found: Mapping[str, Any]) -> str:
    """Return why epsilon does not hold for the run itself; empty where it does."""
    return CLAIMS.get(found["claim"], "").format(**found)


def in_doubt(found: Mapping[str, Any]) -> str:
    """Return what an attacker wants to know whether it is so."""
    return NEIGHBOURS[found["adjacency"]]


def who_was_asked(found: Mapping[str, Any]) -> str:
    """Return which clients were asked in a round."""
    return SAMPLINGS[found["sampling"]].format(**found)


def keeps_sample(found: Mapping[str, Any]) -> bool:
    """Return whether it protects only while it is not known who was asked in which round."""
    return found["notion"] == "client, central" and found["sampling"] in ("poisson", "fixed")
