"""What the operator of a consortium does: to change ``consortium.toml``, and what follows from it."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from .admitted import write_admitted
from .agreement import FILE, Consortium, Site, Value, checked, read, safe_path, write
from .authority import (
    CA_CERTIFICATE,
    authority_fingerprint,
    fingerprint,
    make_authority,
    make_server_certificate,
    public_key,
    public_text,
)
from .kits import make_kit, versions, write_kit, write_superlink
from .programs import of_user, program, superlink, whole_or_none
from .studies import study_digest, study_keys

LOCAL_NAMES = ("localhost", "127.0.0.1")
CONNECTION = "consortium"
"""The name of the SuperLink's connection in the operator's ``FLWR_HOME``."""
PORT, UNREGISTERED = "443", "unregistered"
LINE = "'SITE ecdsa-sha2-nistp384 AAAA... SHA256:...', as join prints it at the site"


def new(
    folder: Path, server: str, sites: Sequence[str], names: Sequence[str], bounds: Mapping[str, Value],
    control: str = "127.0.0.1:8000",
) -> Consortium:  # fmt: skip
    """Make the folder of a consortium: authority, certificate, units, and a kit for each site.

    Raises
    ------
    UserError
        For a name or bound that is not allowed, and when the folder is there.
    """
    folder = safe_path("folder", folder)
    if folder.exists():
        raise not_allowed("folder", str(folder), "a new folder")
    host = server.rpartition(":")[0] or server
    if len(set(sites)) < len(sites):
        raise not_allowed("sites", ",".join(sites), "each name once")
    said: dict[str, Any] = {"name": folder.name, "server": server if ":" in server else f"{server}:{PORT}"}
    said |= {"names": list(dict.fromkeys((host, *names, *LOCAL_NAMES))), "control": control, "authority": ""}
    said |= {"versions": versions(), "bounds": dict(bounds)}
    said["sites"] = {name: {"partition-id": number} for number, name in enumerate(sites)}
    consortium = checked(Consortium, said, FILE)
    with os_errors_as_user_errors("folder", f"write to {str(folder)!r}"), whole_or_none(folder):
        folder.mkdir(parents=True)
        make_authority(folder, consortium.name)
        make_server_certificate(folder, consortium.names)
        consortium.authority = authority_fingerprint(folder / CA_CERTIFICATE)
        write_superlink(folder, consortium)
        for name in consortium.sites:
            write_kit(folder / "kits" / f"{name}.zip", make_kit(folder, consortium, name))
        write(folder, consortium)
    return consortium


def admit(folder: Path, line: str, replaces: bool = False) -> str:
    """Enter the key of a site, and return its name; with ``replaces`` in the place of an earlier one.

    Raises
    ------
    UserError
        For a line that is none of ``join``'s, an unknown site, or a key where there is one.
    """
    name, key, told = parsed(line)
    consortium = read(folder)
    site = consortium.site(name)
    if site.key == key:
        return name
    if site.key and not replaces:
        raise UserError(f"{name}: has a key already, {site.fingerprint}; consortium replace changes it")
    if replaces and not site.key:
        raise UserError(f"{name}: has no key to replace; consortium admit enters its first")
    before, site.key, site.fingerprint, site.node = site.node, key, told, ""
    consortium.check()
    unregister(folder, before)
    _tell(folder, consortium)
    return name


def parsed(line: str) -> tuple[str, str, str]:
    """Return the site, key and fingerprint of a line that ``join`` has printed.

    Raises
    ------
    UserError
        When it is not one, or the fingerprint is not the key's.
    """
    found = re.fullmatch(r"(\S+)\s+(\S+)\s+(\S.*)\s+(SHA256:\S.*)", line.strip(" \t\r\n'\""), re.DOTALL)
    if not found:
        raise not_allowed("line", line, LINE)
    name, kind, blob, told = ("".join(part.split()) for part in found.groups())  # a mail may have broken it
    key = public_key(f"{kind} {blob}")
    if (real := fingerprint(key)) != told:
        raise not_allowed("fingerprint", told, f"{real}, that of the key: a part of the line was changed")
    return name, public_text(key), told


def remove(folder: Path, name: str) -> None:
    """Take a site out: its key is not accepted any more, and the others are told."""
    consortium = read(folder)
    unregister(folder, consortium.site(name).node)
    consortium.numbers = max(consortium.numbers, consortium.sites[name].partition_id + 1)
    del consortium.sites[name]
    _tell(folder, consortium)


def add(folder: Path, name: str) -> None:
    """Add a site, in the middle of a study too, and make its kit."""
    consortium = read(folder)
    if name in consortium.sites:
        raise not_allowed("site", name, "a new name")
    number = max([consortium.numbers, *(site.partition_id + 1 for site in consortium.sites.values())])
    consortium.sites[name] = checked(Site, {"partition-id": number}, FILE)
    consortium.check()
    write_kit(folder / "kits" / f"{name}.zip", make_kit(folder, consortium, name))
    write(folder, consortium)  # last: a kit that could not be written is no site yet


def renew(folder: Path) -> str:
    """Make a new certificate of the SuperLink, and return until when it holds; sites change nothing."""
    return f"{make_server_certificate(folder, read(folder).names):%Y-%m-%d}"


def move(folder: Path, server: str) -> None:
    """Have the SuperLink reached elsewhere: another certificate and unit, and a list that tells all sites."""
    consortium = read(folder)
    consortium.server = server if ":" in server else f"{server}:{PORT}"
    consortium.names = list(dict.fromkeys((consortium.server.rpartition(":")[0], *consortium.names)))
    consortium.check()
    make_server_certificate(folder, consortium.names)
    write_superlink(safe_path("folder", folder), consortium)
    _tell(folder, consortium)


def study(folder: Path, name: str, file: Path) -> str:
    """Enter a study, a file of keys, by its digest, which is returned; a copy of the file is kept.

    Raises
    ------
    UserError
        When its server or a site would refuse the run, or it is not of as many clients as there are sites.
    """
    from ..job.checks.unused_keys import FLOWER  # seconds, which no other command needs
    from ..server.federation import Federation
    from .fit import of_bounds, study_config

    consortium, keys = read(folder), study_keys(file)
    if (given := keys.get("num-clients", "")) != (sites := len(consortium.sites)):
        raise not_allowed("num-clients", given, f"{sites}, as many sites as {FILE} has")
    config = study_config(keys)
    for site, its in consortium.sites.items():
        for found in of_bounds(config, {**consortium.bounds, **its.bounds}):
            if found.remedy:
                raise UserError(f"{found.remedy}; that is the bound {found.found} of {site} in {FILE}")
    Federation(config, FLOWER)
    consortium.studies[name] = digest = study_digest(file)
    _tell(folder, consortium)
    (folder / "studies").mkdir(exist_ok=True)
    write_atomically(folder / "studies" / f"{name}.toml", file.read_bytes())
    return digest


def _tell(folder: Path, consortium: Consortium) -> None:
    """Write what has changed, and the list of admitted sites with a higher number."""
    consortium.serial += 1
    write_admitted(folder, consortium)
    write(folder, consortium)  # last: after a failure the same command does all of it


def register(folder: Path) -> list[str]:
    """Register every admitted key that the SuperLink does not have yet, and return whose.

    Raises
    ------
    UserError
        When the SuperLink cannot be reached, or refuses.
    """
    consortium, done = read(folder), []
    known = nodes(folder) if any(site.node for site in consortium.admitted.values()) else {}
    for name, site in consortium.admitted.items():
        if site.node in known:
            continue
        with NamedTemporaryFile("w", suffix=".pub") as key:
            key.write(site.key)
            key.flush()
            try:
                said = flower(folder, "register", key.name, CONNECTION, "--name", name, "--format", "json")
                site.node = str(_json(said)["node-id"])
            except UserError as error:
                site.node = _registered_before(folder, consortium, name, error)
        write(folder, consortium)
        done.append(name)
    return done


def _registered_before(folder: Path, consortium: Consortium, name: str, error: UserError) -> str:
    """Return the number of a key that the SuperLink has by a command that was ended before it was written.

    Raises
    ------
    UserError
        When there is no such one: the key was taken out, or the error is another.
    """
    if "already in use" not in str(error):
        raise error
    ours, known = [site.node for site in consortium.sites.values()], nodes(folder)
    found = [node for node in known if node not in ours]  # of two either may be it
    if len(found) != 1 or known[found[0]]["status"] == UNREGISTERED:
        raise UserError(
            f"{name}: its key was taken out once; ./join --new-key there, and replace it"
        ) from None
    return found[0]


def unregister(folder: Path, node: str) -> None:
    """Have the SuperLink refuse a site's key from now on, unless it does not know it."""
    try:
        if node:
            flower(folder, "unregister", node, CONNECTION)
    except UserError as error:
        if "Node ID not found" not in str(error):
            raise


def nodes(folder: Path) -> dict[str, dict[str, str]]:
    """Return what the SuperLink says of each SuperNode, by its number.

    Raises
    ------
    UserError
        When the SuperLink cannot be reached.
    """
    said = _json(flower(folder, "ls", CONNECTION, "--format", "json"))
    return {node["node-id"]: node for node in said["nodes"]}


def flower(folder: Path, *words: str) -> str:
    """Run ``flwr supernode`` as a user of this SuperLink, and return what it prints.

    Raises
    ------
    UserError
        When it fails.
    """
    control = read(folder).control
    home = of_user(folder / "flwr", CONNECTION, control, folder)
    command = [program("flwr"), "supernode", *words]
    ended = subprocess.run(command, check=False, env=home, capture_output=True, text=True)
    if ended.returncode or '"success": false' in ended.stdout:
        said = re.sub(r'[{}│╭╮╰╯─]|\\n|"success": false,|"error-message":', " ", ended.stdout + ended.stderr)
        told = " ".join(said.split())[-300:] or "no answer"
        raise UserError(f"superlink: {told}; is it running, at {control}?")
    return ended.stdout


def _json(text: str) -> dict:
    return dict(json.loads(text[text.index("{") :]))


def superlink_command(folder: Path) -> list[str]:
    """Return the command line of the SuperLink, with the places that its unit gives it."""
    secret = Path(os.environ.get("CREDENTIALS_DIRECTORY") or folder / "secret")
    kept = Path(os.environ.get("STATE_DIRECTORY") or folder / "superlink")
    return superlink(read(folder).control, folder, secret / "server.key", kept / "superlink.db")
