"""What a run took: seconds, and bytes sent and received."""

from collections.abc import Iterator

from ....config.metric_names import NONE
from ...run_reader import Run
from ..html import key_values, paragraph


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
