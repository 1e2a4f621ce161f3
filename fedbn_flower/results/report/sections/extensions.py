"""What a run's extensions say of it, and of what the server saw."""

from collections.abc import Iterator

from ....config.help import as_text
from ....extensions import built_in
from ...run_reader import Run
from ..html import key_values, paragraph


def extensions(run: Run) -> Iterator[str]:
    """Yield what the run's own extensions say of it."""
    for name, found in run.summary.extensions.items():
        rounded = ((key, f"{v:.6g}" if isinstance(v, float) else as_text(v)) for key, v in found.items())
        yield key_values({f"{name}, {key}": value for key, value in rounded})


def what_the_server_saw(run: Run) -> Iterator[str]:
    """Yield what extensions say that a server saw."""
    for cls in built_in(run.config):
        if found := run.summary.extensions.get(cls.__name__.lower()):
            yield from map(paragraph, cls.seen(found))
