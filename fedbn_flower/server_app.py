"""The Flower ServerApp: what ``flwr run`` starts."""

import logging
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from .config import RunConfig
from .errors import RunFailed, UserError, not_allowed
from .federation import Federation, Observer, RoundResult
from .run_folder import RunFolder

LOGGER = logging.getLogger("flwr.fedbn")

app = ServerApp()


class RoundLog:
    """Logs a line a round."""

    def on_round(self, result: RoundResult) -> None:
        metrics = {
            **result.means,
            **{f"global-{k}": v for k, v in (result.global_metrics or {}).items()},
        }
        figures = ", ".join(f"{k} {v:.4f}" for k, v in metrics.items() if k != "train-examples")
        LOGGER.info("round %d: %s, failures %d", result.server_round, figures, result.failures)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes; the results go to ``run-dir`` if it is given."""
    try:
        config = RunConfig.of(context.run_config)
        if config.resume:
            raise not_allowed("resume", config.resume, "nothing: only run_sim.py can resume a run")
        federation = Federation(config)
        folder = None if config.run_dir == "auto" else RunFolder(Path(config.run_dir), federation)
        observers: list[Observer] = [RoundLog(), *([folder] if folder else [])]
        federation.run(grid, observers)
    except (UserError, RunFailed) as error:
        LOGGER.error("%s", error)
        sys.exit(2 if isinstance(error, UserError) else 1)
    if folder:
        folder.finish()
        LOGGER.info("results are in %s", folder.path)
