"""The command ``consortium``: of the operator, and of a site."""

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from ..cli.argument_parser import Parser
from ..core.errors import UserError, not_allowed
from . import operator
from .agreement import Value, read, safe_path
from .authority import CA_CERTIFICATE, authority_fingerprint
from .findings import shown
from .kits import make_kit, write_kit
from .programs import become
from .standing import ONLINE, standing
from .studies import study_keys

Options = argparse.Namespace


def consortium(arguments: Sequence[str]) -> int:
    """Run ``consortium VERB ...``; return the exit status."""
    if list(arguments[:1]) == ["try"]:
        from .local import try_it

        return try_it(list(arguments[1:]))
    options = consortium_parser().parse_args(arguments)
    return int(options.act(options) or 0)


def consortium_parser() -> Parser:
    """Return the parser of the command's arguments."""
    about = "Sites that train together: their keys, kits and studies."
    parser = Parser("fedbn-sim consortium", description=about)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (act, words, help_) in VERBS.items():
        verb = verbs.add_parser(name, help=help_, description=help_, allow_abbrev=False)
        verb.set_defaults(act=act)
        for word in words.split():
            verb.add_argument(word, **ARGUMENTS[word])  # type: ignore[arg-type]
    verbs.add_parser("try", help="all of it on this machine: SuperLink, SuperNodes, TLS and keys")
    return parser


def _bounds(given: Sequence[str]) -> Mapping[str, Value]:
    found: dict[str, Value] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise not_allowed("bound", text, "KEY=VALUE, as secagg-min=3")
        found[key] = value
        with suppress(ValueError):
            found[key] = json.loads(value)
    return found


def _new(options: Options) -> None:
    sites, bounds = re.split(r"\s*,\s*", options.sites.strip()), _bounds(options.bound)
    made = operator.new(options.folder, options.server, sites, options.name, bounds, options.control)
    folder = safe_path("folder", options.folder)
    print(f"{folder}: authority {made.authority}")
    print(f"start the SuperLink on its machine: sudo {folder}/superlink/install")
    print(f"send each site its kit: {', '.join(f'{folder}/kits/{name}.zip' for name in made.sites)}")


def _kit(options: Options) -> None:
    made = make_kit(options.folder, read(options.folder), options.site, options.wheels)
    print(f"{options.to}: SHA-256 {write_kit(options.to, made)}")
    print(f"authority, to compare by telephone: {authority_fingerprint(options.folder / CA_CERTIFICATE)}")


def _admit(options: Options) -> None:
    for line in options.line:
        print(f"{operator.admit(options.folder, line, options.verb == 'replace')}: admitted")
    _register(options)


def _register(options: Options) -> None:
    """Register keys, and say which list to send, and whether no study is of as many sites."""
    try:
        for name in operator.register(options.folder):
            print(f"{name}: its key is registered with the SuperLink")
    except UserError as error:
        print(f"{error}; then: fedbn-sim consortium register {options.folder}")
    agreed = read(options.folder)
    print(f"send all sites {options.folder / agreed.name}.admitted")
    numbers = [study_keys(file).get("num-clients") for file in (options.folder / "studies").glob("*.toml")]
    if numbers and len(agreed.sites) not in numbers:
        print(f"no study is of the {len(agreed.sites)} sites that there are now (num-clients): enter another")


def _remove(options: Options) -> None:
    operator.remove(options.folder, options.site)
    _register(options)


def _add(options: Options) -> None:
    operator.add(options.folder, options.site)
    print(f"send the site {options.folder / 'kits' / options.site}.zip")


def _renew(options: Options) -> None:
    print(f"valid until {operator.renew(options.folder)}; restart the SuperLink and reload nginx")


def _move(options: Options) -> None:
    operator.move(options.folder, options.server)
    _register(options)


def _study(options: Options) -> None:
    print(f"{options.name}: {operator.study(options.folder, options.name, options.study)}")
    _register(options)
    print(f"send them {options.study}, too")


def _status(options: Options) -> int:
    tables = standing(options.folder)
    for table in tables.values():
        table.show(Console(emoji=False))
    return int(any(row[2] != ONLINE for row in tables["Sites"].rows))


def _superlink(options: Options) -> None:
    folder = safe_path("folder", options.folder)
    home = os.environ.get("FLWR_HOME") or folder / "superlink" / "flwr"
    become(operator.superlink_command(folder), Path(home))


def _join(options: Options) -> int:
    from . import site
    from .doctor import of_site

    at = site.AtSite(options.kit)
    site.join(at, options.data, options.port, options.new_key, options.admitted)
    if options.study:
        site.admit_study(at, options.study)
    failed = 0 if options.new_key else shown(of_site(at))  # no list has the new key yet
    if at.admitted is None or options.new_key:
        print("send this line to the operator, and compare the fingerprint over the telephone:")
        print(at.line())
    elif not failed:
        site.start(at)
    return failed


def _run(options: Options) -> int:
    from . import site
    from .doctor import of_site

    at = site.AtSite(options.kit)
    if failed := shown(of_site(at, starting=True)):
        return failed
    site.run(at)
    return 0


def _leave(options: Options) -> None:
    from . import site

    site.leave(site.AtSite(options.kit))


def _admit_study(options: Options) -> None:
    from . import site

    site.admit_study(site.AtSite(options.kit), options.study)


def _here(text: str) -> Path:
    return Path(text).resolve()


ARGUMENTS: Mapping[str, Mapping[str, object]] = {
    "folder": {"metavar": "FOLDER", "type": Path, "help": "the consortium's"},
    "site": {"metavar": "SITE", "help": "its name"},
    "line": {"metavar": "LINE", "nargs": "+", "help": "as join has printed it at the site"},
    "name": {"metavar": "NAME", "help": "of the study"},
    "study": {"metavar": "STUDY.toml", "type": Path, "help": "a file of keys"},
    "kit": {"metavar": "KIT", "type": _here, "help": "the unpacked kit's folder"},
    "--server": {"required": True, "metavar": "HOST[:PORT]", "help": "where sites reach the SuperLink"},
    "--sites": {"required": True, "metavar": "A,B,C", "help": "their names"},
    "--name": {"action": "append", "default": [], "metavar": "HOST", "help": "a further one of the server"},
    "--bound": {"action": "append", "default": [], "metavar": "KEY=VALUE", "help": "of every site"},
    "--control": {"default": operator.CONTROL, "metavar": "HOST:PORT", "help": "where it listens"},
    "--to": {"required": True, "type": Path, "metavar": "FILE.zip"},
    "--wheels": {"type": Path, "metavar": "DIR", "help": "packages for a site without a registry"},
    "--data": {"type": Path, "metavar": "PATH", "help": "the site's data"},
    "--port": {"type": int, "metavar": "N", "help": "of this machine alone [9094]"},
    "--new-key": {"action": "store_true", "help": "make another key"},
    "--admitted": {"type": Path, "metavar": "FILE", "help": "the operator's list"},
    "--study": {"type": Path, "metavar": "STUDY.toml", "help": "as admit-study takes it"},
    "--kit": {"type": _here, "default": ".", "metavar": "DIR", "help": "the unpacked kit's folder [.]"},
}
"""What verbs are given."""
NEW = "folder --server --sites --name --bound --control"
VERBS: Mapping[str, tuple[Callable[[Options], int | None], str, str]] = {
    "new": (_new, NEW, "make authority, certificate, units, and a kit for each site"),
    "kit": (_kit, "folder site --to --wheels", "make a site's kit"),
    "admit": (_admit, "folder line", "enter the key of a site"),
    "replace": (_admit, "folder line", "put another key of a site in the place of its key"),
    "register": (_register, "folder", "register admitted keys with the SuperLink"),
    "status": (_status, "folder", "show who is admitted and connected"),
    "add": (_add, "folder site", "add a site"),
    "remove": (_remove, "folder site", "take a site out"),
    "renew": (_renew, "folder", "make a new certificate of the SuperLink"),
    "move": (_move, "folder --server", "have the SuperLink reached elsewhere"),
    "study": (_study, "folder name study", "enter a study"),
    "superlink": (_superlink, "folder", "be the SuperLink: what its unit starts"),
    "join": (_join, "kit --data --port --new-key --admitted --study", "at a site: what ./join calls"),
    "run": (_run, "kit", "at a site: be the SuperNode, what ./run calls"),
    "leave": (_leave, "kit", "at a site: what ./leave calls"),
    "admit-study": (_admit_study, "study --kit", "at a site: show what a study would do, and admit it"),
}
