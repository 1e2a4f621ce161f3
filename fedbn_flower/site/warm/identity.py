"""What a worker was started for: with anything else, it is not the one to answer."""

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from flwr.app import Context

from ...core.version import __version__
from ...packages import HERE, PLACES


def identity_of(context: Context, process: int) -> str:
    """Return a digest of the node, the run, its configuration, and the version and code of this process.

    Parameters
    ----------
    context : Context
        The node's, in this run.
    process : int
        What starts the node's client processes.
    """
    facts = {
        "code": digest_of([HERE, *(folder for folders in PLACES.values() for folder in folders)]),
        "node": [context.node_id, process],
        "node-config": context.node_config,
        "path": sys.path,
        "python": [sys.executable, sys.version],
        "run": context.run_id,
        "run-config": context.run_config,
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def digest_of(folders: Iterable[Path]) -> str:
    """Return a digest of the Python files of folders: their names and what is in them."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(json.dumps([str(path.relative_to(folder)), len(content)]).encode() + content)
    return digest.hexdigest()
