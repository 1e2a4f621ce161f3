"""What is looked at on a site's machine: versions, folders, room, key, list, ledger, data."""

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.errors import UserError
from ..core.free_memory import available_memory
from ..job.inputs import RunInputs
from .authority import fingerprint
from .findings import Finding
from .kits import versions
from .log import spent
from .site import LOCK, AtSite, runs

ROOM, TEMPORARY = 2**30, 2**28
"""Bytes that have to be free beside memories of a model, and for temporary files."""
COPIES = 8
"""Of a model, that training and its memories may have at once."""
GIB = 2**30
OLDEST_PYTHON = (3, 11)
MEND = "mend the data, or name others: ./join --data PATH; what a study needs is in its file"


def of_versions(agreed: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the versions here with those agreed on, as far as they matter: two numbers of them."""
    here = versions()
    for name, wanted in agreed.items():
        found = here.get(name) or next((one.version for one in distributions(name=name)), "")
        if name == "python":
            old = tuple(int(word) for word in found.split(".")[:2]) < OLDEST_PYTHON
            yield Finding(name, found, f"install Python {wanted}" if old else "")
        elif found.split(".")[:2] != wanted.split(".")[:2]:
            told = f"{found or 'not installed'}, agreed on {wanted}"
            yield Finding(name, told, f"pip install {name}=={wanted}")
        else:
            yield Finding(name, found)


def of_folder(name: str, path: Path, writes: bool) -> Finding:
    """Look whether this user can read a folder with something in it, or write into one."""
    nearest = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
    wanted = os.R_OK * (nearest == path) | os.W_OK * writes | os.X_OK * nearest.is_dir()
    if os.access(nearest, wanted):
        if not writes and nearest != path:
            return Finding(name, f"{path} is not there", "name the right one: ./join --data PATH")
        is_empty = not writes and path.is_dir() and not any(path.iterdir())
        return Finding(name, f"{path} is empty", MEND) if is_empty else Finding(name, str(path))
    info = nearest.stat()
    owned = f"{nearest} is of user {info.st_uid}, group {info.st_gid}, {stat.filemode(info.st_mode)}"
    remedy = f"let user {os.geteuid()} {'write to' if writes else 'read'} it"
    return Finding(name, owned, f"{remedy} (chown, chmod, or SupplementaryGroups= in the unit)")


def of_room(name: str, path: Path, needed: int) -> Finding:
    """Look how much of a disk is free."""
    nearest = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
    free = shutil.disk_usage(nearest).free
    told = f"{free / GIB:.1f} GiB free at {path}"
    return Finding(name, told, f"make room: {needed / GIB:.1f} GiB are needed" if free < needed else "")


def of_temporary_files() -> Finding:
    """Look at the folder of temporary files."""
    try:
        return of_room("temporary files", Path(tempfile.gettempdir()), TEMPORARY)
    except OSError as error:  # of which no folder has room for a byte
        return Finding("temporary files", str(error), f"make room: {TEMPORARY / GIB:.1f} GiB are needed")


def of_key(at: AtSite) -> Iterator[Finding]:
    """Look at the site's key: that it is there, its owner's alone, and admitted, with this site's number."""
    try:
        mine = fingerprint(at.key().public_key())
    except UserError as error:
        how = "--new-key makes another" if os.path.lexists(at.key_file) else "--data PATH makes one"
        yield Finding("key", str(error), f"./join {how}; then send its line")
        return
    mode = at.key_file.stat().st_mode
    if mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP):
        yield Finding("key", f"{stat.filemode(mode)} {at.key_file}", f"chmod 600 {at.key_file}")
    else:
        yield Finding("key", mine)
    kit, admitted = at.kit, at.admitted
    if admitted is None:
        yield Finding("admitted", "no list yet: send the line, then ./join --admitted FILE")
        return
    site = admitted.sites.get(kit.site)
    if site is None or site.fingerprint != mine:
        remedy = "send the operator the line that ./join prints, then ./join --admitted with the new list"
        yield Finding("admitted", f"this key is not in list {admitted.serial}", remedy)
    elif site.partition_id != kit.partition_id:
        told = f"partition-id {kit.partition_id} in the kit, {site.partition_id} in list {admitted.serial}"
        yield Finding("partition", told, "ask the operator for a new kit: two sites may have one number")
    else:
        yield Finding("admitted", f"in list {admitted.serial}, partition-id {kit.partition_id}")


def of_second(at: AtSite, starting: bool) -> Finding:
    """Look whether a SuperNode with this key, or something else on its port, bars one that is starting."""
    if not runs(at):
        try:
            socket.create_server(("127.0.0.1", at.settings.port)).close()
        except OSError as error:
            told = f"none that this user sees, and its port cannot be had: {error.strerror}"
            return Finding("SuperNode", told, "name a free one: ./join --port N" if starting else "")
        return Finding("SuperNode", "none runs")
    remedy = "stop it (systemctl stop fedbn-supernode): the SuperLink takes one SuperNode a key"
    return Finding("SuperNode", f"one runs with this key ({at.state / LOCK})", remedy if starting else "")


def of_ledger(node_config: Mapping[str, Any]) -> Finding:
    """Look at what is left of the site's budget of privacy."""
    from ..site.ledger import ENDING, FOLDER, SiteLedger

    most = node_config.get("dp-max-epsilon")
    try:
        for path in (Path(str(node_config.get("state-dir", "."))) / FOLDER).glob(f"*{ENDING}"):
            SiteLedger(path).entries()
    except UserError as error:
        return Finding("ledger", str(error), "restore the state folder from its backup")
    now = spent(node_config)
    told = f"epsilon {now:g} is spent" + (f", of at most {most:g}" if most else "")
    over = "no private study is answered any more; its owner may raise dp-max-epsilon in consortium.toml"
    return Finding("ledger", told, over if most and now >= float(most) else "")


def of_data(config: RunConfig, node_config: Mapping[str, Any]) -> Iterator[Finding]:
    """Read the data as a study reads them; what is told are counts, and only here."""
    from ..job.checks.notices import warnings_of_data
    from ..job.what_is_learnt import what_is_learnt
    from ..site.inputs import inputs_at

    if config.device.startswith("cuda"):
        import torch

        there = torch.cuda.is_available()
        found = torch.cuda.get_device_name() if there else "PyTorch finds none"
        remedy = "" if there else "nvidia-smi shows whether the driver is there; or device='cpu'"
        yield Finding("GPU", found, remedy)
        config = run_config({**config.to_user_config(), "device": "cpu"})  # what is looked at needs none
    try:
        inputs = inputs_at(config, node_config)
        if not inputs.dataset.has_examples:
            yield Finding("data", "the study describes data, and none are here", MEND)
            return
        learnt = what_is_learnt(inputs, int(node_config.get("partition-id", 0)))
        yield from (Finding("data", str(note)) for note in learnt)
        yield from (Finding("data, doubtful", line) for line in warnings_of_data(inputs))
        yield from of_model(config, inputs, node_config)
    except (UserError, OSError) as error:
        yield Finding("data", str(error), MEND)


def of_model(config: RunConfig, inputs: RunInputs, node_config: Mapping[str, Any]) -> Iterator[Finding]:
    """Look whether memory and disk are enough for a study's model."""
    size = COPIES * sum(array.nbytes for array in inputs.model()[1].values())
    free = available_memory()
    told = f"{free / GIB:.1f} GiB free, the model takes {size / GIB:.3f} GiB"
    yield Finding("memory", told, "end other programs, or train a smaller model" if free < size else "")
    yield of_room("disk", Path(str(node_config.get("state-dir", "."))), ROOM + size)
