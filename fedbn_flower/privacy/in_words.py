"""What is said of a run's privacy, in the sentences of ``sentences.toml``.

Each function takes what the run's summary says of its privacy.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SENTENCES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text())
FILES_OUTSIDE: str = SENTENCES["outside"]["files"]


def _said(found: Mapping[str, Any], what: str) -> str:
    return str(SENTENCES["notions"][found["notion"]][what]).format(**found)


def outside(notion: str, *further: str) -> list[str]:
    """Return what the guarantee of a notion does not cover, with ``further`` sentences by name."""
    known = SENTENCES["outside"]
    return [known[name].format(**known) for name in (*SENTENCES["notions"][notion]["outside"], *further)]


def protected(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return who is protected, and from whom."""
    return _said(found, "who"), _said(found, "whom")


def assumed(found: Mapping[str, Any]) -> str:
    """Return what the guarantee assumes."""
    return _said(found, "assumed")


def at_clients(found: Mapping[str, Any]) -> str:
    """Return how clients were protected that add the noise; empty where the server does."""
    notion = SENTENCES["notions"][found["notion"]]
    return str(notion.get("how", SENTENCES["in-every-step"])).format(**notion | dict(found))


def adapted(found: Mapping[str, Any]) -> str:
    """Return what is said of a clip that adapts; empty where it does not."""
    return str(SENTENCES["adapted"]).format(**found) if "count-noise" in found else ""


def not_held(found: Mapping[str, Any]) -> str:
    """Return why epsilon does not hold for the run itself; empty where it does."""
    return str(SENTENCES["claims"].get(found["claim"], "")).format(**found)


def in_doubt(found: Mapping[str, Any]) -> str:
    """Return what an attacker wants to know whether it is so."""
    return str(SENTENCES["neighbours"][found["adjacency"]])


def who_was_asked(found: Mapping[str, Any]) -> str:
    """Return which clients were asked in a round."""
    return str(SENTENCES["samplings"][found["sampling"]]).format(**found)


def keeps_sample(found: Mapping[str, Any]) -> bool:
    """Return whether it protects only while it is not known who was asked in which round."""
    return found["notion"] == "client, central" and found["sampling"] in ("poisson", "fixed")
