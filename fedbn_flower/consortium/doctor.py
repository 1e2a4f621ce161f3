"""The command ``doctor``: look at everything of which a run might fail, before it does."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..cli.argument_parser import Parser
from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import write_atomically
from ..site.ledger import FOLDER
from . import machine
from .agreement import read
from .authority import CA_CERTIFICATE
from .findings import SAID, Finding, looked_at, shown
from .fit import of_bounds, study_config
from .log import HEAD, LOG, checked
from .network import AT_OPERATOR, AT_SITE, of_the_way
from .site import STUDIES, AtSite
from .studies import admitted_studies, study_keys


def doctor(arguments: Sequence[str]) -> int:
    """Run ``doctor [--kit DIR | --consortium FOLDER] [--study FILE] [--KEY VALUE ...]``.

    Returns
    -------
    int
        1 if a run would fail, otherwise 0.
    """
    usage = "%(prog)s [--kit DIR | --consortium FOLDER] [--study FILE] [--KEY VALUE ...]"
    about = "Look at everything of which a run might fail: what was found, and what to do."
    parser = Parser("fedbn-sim doctor", usage=usage, description=about, allow_abbrev=False)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--kit", metavar="DIR", type=Path, help="a site's unpacked kit")
    place.add_argument("--consortium", metavar="FOLDER", type=Path, help="the operator's folder")
    parser.add_argument("--study", metavar="FILE", type=Path, help="as which the data are read")
    options, of_run = parser.parse_known_args(arguments)
    keys = (_keys(of_run) if of_run else {}) | (study_keys(options.study) if options.study else {})
    config = (study_config if options.study else run_config)(keys) if keys else None
    if options.kit:
        return shown(of_site(AtSite(options.kit.resolve()), config))
    if options.consortium:
        agreed, authority = read(options.consortium), options.consortium / CA_CERTIFICATE
        found = [*machine.of_versions(agreed.versions), *of_the_way(agreed.server, authority, AT_OPERATOR)]
        found.append(machine.of_temporary_files())
        failed = shown(found)
        with os_errors_as_user_errors("consortium", f"write to {str(options.consortium)!r}"):
            write_atomically(options.consortium / SAID, "".join(f"{one}\n" for one in found))
        return failed
    return shown([machine.of_temporary_files(), *machine.of_data(config or run_config({}), {})])


def _keys(words: Sequence[str]) -> dict[str, Any]:
    from ..cli.parser import Job, parse_command_line

    job = parse_command_line(words)
    if not isinstance(job, Job) or job.sweep:
        raise UserError("doctor: the data are read for one run, not for a sweep or a search")
    return dict(job.configs[0].to_user_config())


def of_site(at: AtSite, config: RunConfig | None = None, starting: bool = False) -> Iterator[Finding]:
    """Yield what was found at a site, its data read as a study reads them, by default each admitted one."""
    kit, node_config = at.kit, at.node_config()
    yield from machine.of_versions(kit.versions)
    with suppress(UserError):  # a list that cannot be read is told of with the key
        yield from of_the_way(at.server, at.authority, AT_SITE if at.admitted else "")
    yield from looked_at("admitted", "./join --admitted FILE takes the list anew", lambda: machine.of_key(at))
    yield machine.of_second(at, starting)
    found = machine.of_folder("data", Path(str(node_config["data-path"])), writes=False)
    yield found
    for name, path in (("state", at.state), ("cache", at.cache), ("audit log", at.audit)):
        yield machine.of_folder(name, path, writes=True)
    if os.path.lexists(at.state / FOLDER):
        yield machine.of_folder("ledger", at.state / FOLDER, writes=True)
    yield machine.of_room("disk", at.state, machine.ROOM)
    yield machine.of_temporary_files()
    yield machine.of_ledger(node_config)
    yield from looked_at("studies", "move it away; ./join, and admit them anew", partial(_of_studies, at))
    yield from looked_at("audit log", "ask who changed it; moved away, it begins anew", partial(_of_log, at))
    for study in [config] if config else at.study_files():
        look = partial(_of_study, study, node_config, not found.remedy)
        yield from looked_at("study", f"remove {study}, and admit the study anew", look)


def _of_studies(at: AtSite) -> Iterator[Finding]:
    yield Finding("studies", f"{len(admitted_studies(at.own / STUDIES))} admitted")


def _of_log(at: AtSite) -> Iterator[Finding]:
    if any(os.path.lexists(at.audit / name) for name in (LOG, HEAD)):
        yield Finding("audit log", f"{len(checked(at.audit, after_a_kill=True))} lines, none changed")


def _of_study(study: RunConfig | Path, node_config: dict[str, Any], reads: bool) -> Iterator[Finding]:
    config = study_config(study_keys(study)) if isinstance(study, Path) else study
    yield from of_bounds(config, node_config)
    if reads:
        yield from machine.of_data(config, node_config)
