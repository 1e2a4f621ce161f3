"""What the report of a run with secure aggregation says of it, for whoever answers for the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

LIBRARIES = ("cryptography", "pycryptodome")
"""Whose versions a report states: what made keys and masks, and shares."""


def seen(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paragraphs of a report.

    Parameters
    ----------
    found : Mapping[str, Any]
        What the run's summary says of it.
    """
    if found["mode"] != "on":
        yield (
            "The clients' answers were whole numbers that the server added, without masks (secagg plain): it "
            "saw each client's. Nobody was protected by this."
        )
        return
    fewest, most = found.get("sums-of") or (0, 0)
    sums = f"of {fewest} clients" if fewest == most else f"of {fewest} to {most} clients"
    yield (
        "The server saw sums over clients, and nothing of any single one but random numbers, its public "
        f"keys, that it took part, and when. Sums were {sums}; one of fewer than {found['least']} would not "
        "have been unmasked. So there are no rows by client: nobody has them."
    )
    yield (
        "To see one client's answer, the server would have to work with all other clients of a sum, or with "
        "so many of its neighbours that their shares give its masks, or to have invented them. Clients that "
        "dropped out in mid-round were left out; their masks were taken off with their neighbours' help."
    )
    yield _of_a_lying_server(found.get("signed", 0))
    yield (
        "A client could send any update, unseen. A sum that clients within their bounds cannot have would "
        "have cost the round its result, as false shares do; so no round's mean was longer than the bound."
    )
    yield (
        "Not protected: who took part, when, how long it took and how much was sent; what follows from the "
        "sums themselves and from the published models, against which only noise (dp) helps."
    )
    if "bits" in found:
        made, shares = (f"{name} {found[name]}" if name in found else name for name in LIBRARIES)
        yield (
            f"Numbers were added modulo 2^{found['bits']}; rounding moved the mean update by "
            f"{found['error']:.2g} of the clip. Keys and masks were made by {made}, and shares by {shares}, "
            "from random numbers of the operating system."
        )


def _of_a_lying_server(signed: int) -> str:
    if signed:
        return (
            "Sites signed their keys, and what they were told of a sum, with keys of their own (secagg-key): "
            f"each sum at least {signed} of them. A server that had put keys of its own in the place of "
            "theirs, had named other survivors to one site than to another, or given it another model, would "
            "have had no sum."
        )
    return (
        "Sites did not sign with keys of their own (secagg-key). So they had to trust the server to pass on "
        "the keys of others as they were, to name the same survivors to all sites, and to give all the same "
        "model: one that lied could have seen single answers."
    )
