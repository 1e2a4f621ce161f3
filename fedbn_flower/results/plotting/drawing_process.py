"""The process that draws a run's figures, see `drawer`: ``python -m MODULE DESCRIPTOR``."""

import gc
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from ...core.ground.collector import no_collection


def serve(connection: Connection) -> None:
    """Draw every `drawer.Job` that arrives, to the end of the run; answer with its result or its mistake."""
    with no_collection():
        from matplotlib.backends import backend_agg, backend_svg  # noqa: F401

        from . import report_plots, svg_figure  # noqa: F401
    gc.freeze()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            job = connection.recv()
            answer: tuple[str | None, str]
            try:
                answer = job.done(), ""
            except Exception as error:
                answer = None, repr(error)
            connection.send(answer)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
