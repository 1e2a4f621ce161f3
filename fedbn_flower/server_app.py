"""The Flower ServerApp: what ``flwr run`` starts."""

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from .config import RunConfig
from .errors import RunFailed, UserError
from .federation import Federation, Observer, RoundResult
from .resume import check_unchanged, load_checkpoint
from .run_folder import RunFolder, run_folder_locked

LOGGER = logging.getLogger("flwr.fedbn")

PATIENCE = 90.0  # seconds; the server's process outlives a SuperLink that was killed, for a while

app = ServerApp()


class RoundLog(Observer):
    """Logs a line a round."""

    def on_round(self, result: RoundResult) -> None:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in result.figures.items())
        LOGGER.info("round %d: %s, failures %d", result.server_round, figures, result.failures)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes; the results go to ``run-dir`` if it is given.

    With ``resume``, it goes on in that folder from the last checkpoint; the SuperNodes go on from what they
    have in their ``state-dir``.

    Raises
    ------
    UserError, RunFailed
        Told in one line; Flower marks the run as failed.
    """
    logging.getLogger("flwr").addFilter(_without_traceback)
    try:
        _run(grid, RunConfig.of(context.run_config))
    except (UserError, RunFailed) as error:
        LOGGER.error("%s", error)
        raise


def _without_traceback(record: logging.LogRecord) -> bool:
    """Flower logs whatever ends a ServerApp with its traceback; what was told in one line needs none."""
    if record.exc_info and isinstance(record.exc_info[1], UserError | RunFailed):
        record.exc_info = None
    return True


def _run(grid: Grid, config: RunConfig) -> None:
    federation = Federation(config)
    path = config.resume or config.run_dir
    if path == "auto":
        federation.run(grid, [RoundLog()])
        return
    folder = Path(path)
    if config.resume:
        check_unchanged(federation)
    with run_folder_locked(config, folder, patience=PATIENCE):
        checkpoint = load_checkpoint(config, clients_here=False) if config.resume else None
        if checkpoint:
            LOGGER.info("resuming %s after round %d", folder, checkpoint.server_round)
        results = RunFolder(folder, federation, checkpoint=checkpoint)
        try:
            federation.run(grid, [RoundLog(), results], checkpoint)
        finally:
            results.finish()
    LOGGER.info("results are in %s", folder)
