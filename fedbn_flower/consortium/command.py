"""The command ``consortium``: of the operator, and of a site."""

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

from rich.console import Console

from ..cli.argument_parser import Parser
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from . import operator
from .admitted import write_admitted
from .agreement import Value, read, safe_path, toml_of
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
    place = getattr(options, "folder", None) or options.kit
    with os_errors_as_user_errors("consortium", f"finish {options.verb!r} at {str(place)!r}"):
        return int(options.act(options) or 0)


def consortium_parser() -> Parser:
    """Return the parser of the command's arguments."""
    about = "Sites that train together: their keys, kits and studies."
    parser = Parser("fedbn-sim consortium", description=about)
    known = toml_of(Path(__file__).with_name("arguments.toml"))
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (words, help_) in known["verbs"].items():
        verb = verbs.add_parser(name, help=help_, description=help_, allow_abbrev=False)
        verb.set_defaults(act=resolve_name(f"{__name__}:_{name.replace('-', '_')}"))
        for word in words.split():
            kind = {"type": TYPES[known[word]["type"]]} if "type" in known[word] else {}
            verb.add_argument(word, **(known[word] | kind))
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


_replace = _admit


def _register(options: Options) -> None:
    """Register keys, and say which list to send, and whether no study is of as many sites."""
    try:
        for name in operator.register(options.folder):
            print(f"{name}: its key is registered with the SuperLink")
    except UserError as error:
        print(f"{error}; then: fedbn-sim consortium register {options.folder}")
    agreed = read(options.folder)
    print(f"send all sites {write_admitted(options.folder, agreed)}")
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
    print(f"valid until {operator.renew(options.folder)}; restart: sudo {options.folder}/superlink/install")


def _move(options: Options) -> None:
    operator.move(options.folder, options.server)
    print(f"restart the SuperLink where it is now: sudo {options.folder}/superlink/install")
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
    if not (failed := shown(of_site(at, starting=True))):
        site.run(at)
    return failed


def _leave(options: Options) -> None:
    from . import site

    site.leave(site.AtSite(options.kit))


def _admit_study(options: Options) -> None:
    from . import site

    site.admit_study(site.AtSite(options.kit), options.study)


def _here(text: str) -> Path:
    return Path(text).resolve()


TYPES: Mapping[str, Callable[[str], object]] = {"path": Path, "kit": _here, "number": int}
