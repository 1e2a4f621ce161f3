"""How the pages end: how to repeat what they show, and what a paper needs of it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....config.help import as_text
from ....privacy.private_run import NO_SEED
from ...held_out import held_out_table
from ...manifest import LEARNT, UNUSED, WARNINGS
from ...run_reader import Run
from ..citations import citations
from ..html import command, folded, paragraph, verbatim
from ..repeat_command import command_of, uses_session_objects
from ..tables import Table
from .client_tables import metrics_table


def how_to_reproduce(run: Run) -> Iterator[str]:
    """Yield the command, the versions and all settings of a run."""
    yield command(map(shlex.quote, command_of(run.config)))
    if uses_session_objects(run.config):
        yield paragraph("The run was given Python objects, which a command cannot name.", "note")
    if run.summary.privacy and run.config.get("dp-seed", NO_SEED) == NO_SEED:
        yield paragraph("Its noise followed from a secret key: the command draws other noise.", "note")
    versions = run.config.get("versions") or {}
    yield paragraph(", ".join(f"{name} {version}" for name, version in versions.items()), "note")
    shown_elsewhere = ("versions", LEARNT, UNUSED, WARNINGS)
    rows = [[key, as_text(value)] for key, value in run.config.items() if key not in shown_elsewhere]
    yield paragraph("Of paths the last part is shown; config.json has them.", "note")
    yield folded("All settings", Table(["key", "value"], rows, words=2).html())


def paper_of_run(run: Run) -> Iterator[str]:
    """Yield `for_a_paper` of one run."""
    yield from for_a_paper([run.config], metrics_table(run), *filter(None, [held_out_table([run])]))


def for_a_paper(configs: Sequence[Mapping[str, Any]], *tables: Table) -> Iterator[str]:
    """Yield the tables as LaTeX, and what to cite."""
    if found := "\n".join(table.latex() for table in tables if table.rows):
        yield paragraph("The tables as LaTeX (booktabs):", "note")
        yield verbatim(found)
    yield folded("To cite: Flower, and the papers of the algorithms (BibTeX)", verbatim(citations(configs)))
