"""How a consortium stands: its sites, what it has agreed on, and what the operator's doctor said last."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ..core.errors import UserError
from ..core.text import number_of
from ..results.report.tables import Table
from . import operator
from .agreement import Consortium, read
from .authority import SERVER_CERTIFICATE, certificate_in
from .findings import SAID

ONLINE = "online"


def standing(folder: Path) -> dict[str, Table]:
    """Return tables by their titles: the sites, what was agreed on, and what the doctor said last.

    Raises
    ------
    UserError
        When the folder is no consortium's, or its files cannot be read.
    """
    consortium = read(folder)
    valid = certificate_in(folder / SERVER_CERTIFICATE).not_valid_after_utc
    days = (valid - datetime.now(UTC)).days
    left = f"{number_of(days, 'day')} left" if days >= 0 else "it has ended"
    agreed = {"SuperLink": consortium.server, "certificate": f"until {valid:%Y-%m-%d}, {left}"}
    agreed |= {"list": str(consortium.serial), **consortium.versions}
    agreed |= {f"study {name}": digest for name, digest in consortium.studies.items()}
    rows = [[*row] for row in agreed.items()]
    found = {"Sites": sites(folder, consortium), "Agreement": Table(["what", "agreed on"], rows, words=2)}
    if (said := folder / SAID).exists():
        when = datetime.fromtimestamp(said.stat().st_mtime, UTC)
        lines = [[line] for line in said.read_text().splitlines()]
        found["The doctor"] = Table([f"said on {when:%Y-%m-%d at %H:%M} UTC"], lines, has_sentences=True)
    return found


def sites(folder: Path, consortium: Consortium) -> Table:
    """Return a row a site: number and name, key, SuperNode, its last sign of life, and whom to call."""
    try:
        nodes, otherwise = operator.nodes(folder), "not registered: consortium register"
    except UserError:
        nodes, otherwise = {}, "SuperLink not reached"
    rows = []
    for name, site in consortium.sites.items():
        told = "admitted" if site.key else "not yet admitted: has it sent its line?"
        node = nodes.get(site.node, {})
        now = node.get("status", otherwise) if site.key else ""
        rows.append([f"{site.partition_id} {name}", told, now, _last_sign(node), site.contact])
    return Table(["site", "key", "SuperNode", "last sign of life", "whom to call"], rows, words=5)


def _last_sign(node: Mapping[str, str]) -> str:
    """Return when a SuperNode was last heard of, as the SuperLink says; empty if it does not know it."""
    if node.get("status") == ONLINE:
        return "now"
    return "never" if node.get("offline-at") == "N/A" else node.get("offline-at", "")
