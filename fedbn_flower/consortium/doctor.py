"""The command ``doctor``: look at everything of which a run might fail, before it does."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..cli.argument_parser import Parser
from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import write_atomically
from . import machine
from .agreement import read
from .authority import CA_CERTIFICATE
from .findings import SAID, Finding, shown
from .fit import of_bounds, study_config
from .network import AT_OPERATOR, AT_SITE, of_the_way
from .site import AtSite
from .studies import study_keys


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
    yield from of_the_way(at.server, at.authority, AT_SITE if at.admitted else "")
    yield from machine.of_key(at)
    yield machine.of_second(at, starting)
    found = machine.of_folder("data", Path(str(node_config["data-path"])), writes=False)
    yield found
    for name, path in (("state", at.state), ("cache", at.cache), ("audit log", at.audit)):
        yield machine.of_folder(name, path, writes=True)
    yield machine.of_room("disk", at.state, machine.ROOM)
    yield machine.of_temporary_files()
    yield machine.of_ledger(node_config)
    studies = [config] if config else [study_config(study_keys(path)) for path in at.study_files()]
    for study in studies:
        yield from of_bounds(study, node_config)
    if not found.remedy:
        for study in studies:
            yield from machine.of_data(study, node_config)
