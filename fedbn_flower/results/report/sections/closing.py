"""How the pages end: what it cost, how to repeat what they show, and what a paper needs of it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from .... import annexes
from ....config.help import as_text
from ....config.keys import RUN_KEYS
from ....config.making import run_config
from ....config.metric_names import NONE
from ....config.named_algorithms import NOT_GIVEN, named, resolve
from ....config.trust import code_in
from ....core.errors import UserError
from ....core.session_objects import is_session_name
from ....privacy.private_run import NO_SEED
from ...held_out import counts_worth_a_table
from ...manifest import LEARNT, NOT_KEYS, UNUSED, WARNINGS
from ...run_reader import Run
from ..citations import citations
from ..html import command, folded, key_values, paragraph, verbatim
from ..tables import Table
from .client_tables import metrics_table
from .results import with_words


def how_to_reproduce(run: Run) -> Iterator[str]:
    """Yield the command, the versions and all settings of a run."""
    words = run.told.command if run.told else command_of(run.config)
    if words:
        yield command(map(shlex.quote, words))
    if not words or uses_session_objects(run.config):
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
    of_annexes = chain.from_iterable(tables(run) for tables in annexes.brought("tables").values())
    tables = [with_words(run, metrics_table(run)), *of_annexes, *counts_worth_a_table([run])]
    yield from for_a_paper([run.config], *tables)


def for_a_paper(configs: Sequence[Mapping[str, Any]], *tables: Table) -> Iterator[str]:
    """Yield the tables as LaTeX, and what to cite."""
    if found := "\n".join(table.latex() for table in tables if table.rows):
        yield paragraph("The tables as LaTeX (booktabs):", "note")
        yield verbatim(found)
    yield folded("To cite: Flower, and the papers of the algorithms (BibTeX)", verbatim(citations(configs)))


LOCATIONS = ("run-dir", "resume")
"""Keys that give a run's folder, not what the run does."""


def command_of(config: Mapping[str, Any]) -> list[str]:
    """Return the words of a run's command line, not yet quoted for a shell, from its ``config.json``.

    They give the keys that differ from their defaults and do not follow from the others. User code is not run
    for this, so all of its settings are given. A Python object passed to `simulate` appears under a name that
    no command line accepts.
    """
    given = {key: value for key, value in config.items() if key not in (*NOT_KEYS, *LOCATIONS)}
    defaults: dict[str, Any] = {key: field.default for key, field in RUN_KEYS.items()}
    run_keys = {key: value for key, value in given.items() if key in RUN_KEYS}
    known = {key: value for key, value in run_keys.items() if not code_in(key, str(value))}
    try:
        algorithms = [found for found in named(known) if found.kind in known]
        settings = resolve(algorithms, run_keys)
    except UserError:  # an algorithm that is not available now
        settings = {}
    defaults |= {key: NOT_GIVEN if value is None else value for key, value in settings.items()}
    needed = {key: value for key, value in given.items() if key not in defaults or defaults[key] != value}
    if len(known) == len(run_keys):
        needed = _without_what_follows(needed)
    return ["fedbn-sim", *(word for key, value in needed.items() for word in (f"--{key}", as_text(value)))]


def _without_what_follows(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is chosen by itself as it was, where nothing is given for it.

    The number of natural clients stays: no data are read for this.
    """
    found = dict(given)
    counted = str(given.get("partition", "")).startswith("natural") and "dataset" in given
    auto = {key for key, field in RUN_KEYS.items() if field.default == NOT_GIVEN}
    try:
        wanted = run_config(found)
        for key in [key for key in found if key in auto and not (counted and key == "num-clients")]:
            fewer = {other: value for other, value in found.items() if other != key}
            if run_config(fewer) == wanted:
                found = fewer
    except UserError:  # written by another version, say
        pass
    return found


def uses_session_objects(config: Mapping[str, Any]) -> bool:
    """Return whether a run was given a Python object, which no command can name."""
    return any(
        is_session_name(str(config.get(key)))
        for key in ("strategy", "client", "objective", "loss", "problem", "model", "dataset")
    )


def costs(run: Run) -> Iterator[str]:
    """Yield seconds, bytes and failures, and what the seconds and bytes are."""
    summary = run.summary
    values = {
        "seconds per round": summary.seconds_per_round,
        "client updates per second": summary.client_updates_per_second,
    }
    sent = {"sent to clients": summary.bytes_sent, "received from clients": summary.bytes_received}
    yield key_values(
        {
            **{name: f"{value:.3g}" for name, value in values.items() if value is not None},
            **{name: size(number) for name, number in sent.items() if number is not None},
            "failures": "" if summary.failures is None else str(summary.failures),
        }
    )
    if split := summary.seconds_split:
        parts = ", ".join(f"{part} {seconds:.3g}" for part, seconds in split)
        yield paragraph(f"Seconds of all rounds: {parts}.", "note")
    yield from _what_travelled(run)


def _what_travelled(run: Run) -> Iterator[str]:
    """Yield what the bytes are that were sent and received."""
    summary = run.summary
    sent, received = summary.bytes_sent, summary.bytes_received
    if sent is None or received is None or not summary.rounds:
        return
    further = run.config.get("metrics") != NONE
    counts = ", and the counts from which further metrics follow" if further else ""
    yield paragraph(
        f"Sent and received are all arrays of the run as they travelled: {size(sent / summary.rounds)} a "
        "round to the clients, the model for those that train and for those that evaluate; and "
        f"{size(received / summary.rounds)} a round from them, what they trained{counts}.",
        "note",
    )


def size(number: float) -> str:
    """Return a number of bytes as text, in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"
