"""The command ``new``: an app of one's own that imports this project, to be kept under version control."""

import re
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from keyword import kwlist
from pathlib import Path

import tomli_w

from ..cli.argument_parser import Parser
from ..config.named_algorithms import keys_for_flower
from ..core.errors import not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..core.version import __version__
from ..packages import PLACES
from .agreement import NAME, toml_of
from .programs import filled, whole_or_none

OURS = ("fedbn_flower", *PLACES, "test", "tests")
"""Names of this project's packages, and of the folder of an app's own tests."""


def new(arguments: Sequence[str]) -> int:
    """Run ``new NAME``: write the files of an app into a new folder of that name."""
    parser = Parser("fedbn-sim new", description="Write an app of a study: its rule, client, model and keys.")
    parser.add_argument("name", metavar="NAME", help="of the app, and of its new folder")
    name = parser.parse_args(arguments).name
    places = {"NAME": name, "PACKAGE": (package := name.replace("-", "_")), "VERSION": __version__}
    taken = {*kwlist, *sys.stdlib_module_names, *packages_distributions(), *OURS}
    if not re.fullmatch(NAME, name) or not name[0].isalpha() or package in taken:
        raise not_allowed("new", name, "small letters, digits and -, as my-study; no name of a package")
    folder = Path(name)
    if folder.exists():
        raise not_allowed("new", name, "a name of which there is no folder yet")
    places["KEYS"] = tomli_w.dumps(keys_for_flower())
    with os_errors_as_user_errors("new", f"write to {name!r}"), whole_or_none(folder):
        for file, text in toml_of(Path(__file__).with_name("new_app.toml")).items():
            path = folder / filled(file, places)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, filled(str(text), places))
    print(f"{folder}: README.md says how to run it")
    return 0
