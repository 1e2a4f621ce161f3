"""What the report of a run with secure aggregation says of it, for whoever answers for the data."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LIBRARIES = ("cryptography", "pycryptodome")
"""Whose versions a report states: what made keys and masks, and shares."""
SENTENCES: dict[str, str] = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text())


def seen(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paragraphs of a report.

    Parameters
    ----------
    found : Mapping[str, Any]
        What the run's summary says of it.
    """
    signed = "signed" if found.get("signed") else "unsigned"
    said = ["sums", "one-answer", signed, "updates", "not-protected", *["numbers"] * ("bits" in found)]
    fewest, most = found.get("sums-of") or (0, 0)
    sums = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    made, shares = (f"{name} {found[name]}" if name in found else name for name in LIBRARIES)
    for name in said if found["mode"] == "on" else ["plain"]:
        yield SENTENCES[name].format(**dict(found) | {"sums": sums, "made": made, "shares": shares})
