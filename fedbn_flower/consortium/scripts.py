"""The programs and units of a kit and of a SuperLink: the texts of ``scripts.toml``.

All are the same but for paths and hosts. No other value of ``consortium.toml`` is in a script: programs read
it from files.
"""

from collections.abc import Mapping
from pathlib import Path

from .agreement import toml_of


def script(name: str, **places: str) -> str:
    """Return a text by its name, with values of its places, such as ``FOLDER``."""
    return filled(str(toml_of(Path(__file__).with_name("scripts.toml"))[name]), places)


def filled(text: str, places: Mapping[str, str]) -> str:
    """Return a text with the values of its places: of each @NAME@."""
    for place, value in places.items():
        text = text.replace(f"@{place}@", value)
    return text


def supernode_unit(folder: str) -> str:
    """Return the unit of a site whose kit is in a folder; ``join`` writes it with the folder's real place."""
    key, start = f"site.key:{folder}/site/site.key", f"{folder}/run"
    return script("unit", TITLE="Flower SuperNode of this site", KEY=key, START=start)


def superlink_unit(folder: str, programs: str) -> str:
    """Return the unit of the SuperLink of a consortium's folder."""
    key = f"server.key:{folder}/secret/server.key"
    start = f"{programs}/fedbn-sim consortium superlink {folder}"
    return script("unit", TITLE="Flower SuperLink of the consortium", KEY=key, START=start)
