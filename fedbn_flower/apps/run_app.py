"""Run any Flower app from Python: ``from fedbn_flower import run_app``."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed
from ..core.logs import colour_in_terminals_only
from ..core.private import History
from ..results.run_directory import default_run_folder, folder_locked, prepare_run_folder
from .app import FlowerApp, app_in, app_of
from .folder import columns_of
from .run import AUTO, NONE, Outcome, Settings, run_in_folder

if TYPE_CHECKING:
    from pandas import DataFrame

SEEDS = 2**31


class AppResult:
    """What the run of an app came to.

    Parameters
    ----------
    folder : Path
        The run's folder.
    outcome : Outcome
        What was seen of the run.
    """

    def __init__(self, folder: Path, outcome: Outcome) -> None:
        self.folder = folder
        self.results: Sequence[Result | History] = tuple(outcome.results.found)
        """What each strategy gave, Flower's own objects: a Result, or a History of a legacy one."""
        self.arrays: Mapping[str, NDArray] = outcome.results.arrays()
        """The final arrays by name; empty if no strategy gave some."""
        self.rounds = outcome.rounds.total
        """Of all strategies together."""
        self.failures = outcome.rounds.failures
        """Replies that were errors."""
        self.seconds = outcome.seconds
        self.place: Mapping[str, Any] = outcome.place
        """Where clients ran at the end: ``backend``, and ``workers`` if it has some."""
        self._rows = outcome.results.rows()

    @cached_property
    def history(self) -> DataFrame:
        """One row per round: ``metrics.csv``."""
        from pandas import DataFrame

        return DataFrame(self._rows, columns=columns_of(self._rows))

    def __repr__(self) -> str:
        return f"AppResult({str(self.folder)!r}, rounds={self.rounds}, failures={self.failures})"


def run_app(
    app: str | PathLike[str] | ServerApp | None = None,
    client_app: ClientApp | None = None,
    *,
    server_app: ServerApp | None = None,
    run_config: Mapping[str, Any] | str | Sequence[str] = (),
    num_supernodes: int | None = None,
    backend: str = AUTO,
    workers: int = 0,
    seed: int | None = None,
    run_dir: str | PathLike[str] | None = None,
    track: str = NONE,
    progress: bool = True,
) -> AppResult:
    """Run a Flower app, unchanged, on virtual nodes in this process or on Ray's workers.

    Parameters
    ----------
    app : str, Path or ServerApp, optional
        The folder of the app, with its ``pyproject.toml``; or a ServerApp, as defined in a notebook.
    client_app : ClientApp, optional
        The other side, with a ServerApp.
    server_app : ServerApp, optional
        The ServerApp by name, in the place of ``app``.
    run_config : Mapping, str or Sequence[str], optional
        Values in place of the app's own: by key, or as ``flwr run --run-config`` takes them. With app
        objects, the whole configuration.
    num_supernodes : int, optional
        How many nodes there are. By default ``options.num-supernodes`` of the default federation in the
        app's ``pyproject.toml``, else 2, as in Flower; the log says which.
    backend : str
        ``inline``: everything in this process and thread, for breakpoints. ``ray``: clients on workers.
        ``auto``: inline, and on workers once these save time; under a debugger inline.
    workers : int
        Ray's workers; 0 for one a core.
    seed : int, optional
        Of `random`, NumPy and PyTorch, on the server and in every client's call. By default one is drawn,
        which ``config.json`` has.
    run_dir : str or Path, optional
        A new or empty folder; by default a new one under ``runs/``.
    track : str
        A tracker of experiments that gets every round: ``tensorboard``, ``mlflow`` or ``wandb``.
    progress : bool
        Whether a terminal shows a line of progress.

    Returns
    -------
    AppResult
        History, arrays, and the folder.

    Raises
    ------
    UserError
        For anything that is not allowed, before anything starts.
    RunFailed
        When every client failed.
    Exception
        What the ServerApp raises; its results so far stay in the folder.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> from flwr.serverapp import ServerApp
    >>> from fedbn_flower import run_app
    >>> server, client = ServerApp(), ClientApp()
    >>> @server.main()
    ... def main(grid, context):
    ...     print(len(list(grid.get_node_ids())), "nodes")
    >>> result = run_app(server, client, num_supernodes=3)
    3 nodes
    """
    overrides = [run_config] if isinstance(run_config, str) else run_config
    found = _app(_server_or_folder(app, server_app), client_app, overrides)
    drawn = secrets.randbelow(SEEDS) if seed is None else seed
    how: dict[str, Any] = {"backend": backend, "workers": workers, "seed": drawn, "track": track}
    if num_supernodes is None:
        settings = Settings(found.num_supernodes, **how, nodes_from=found.nodes_from)
    else:
        settings = Settings(num_supernodes, **how)
    folder = _folder(run_dir)
    colour_in_terminals_only()
    with folder_locked(folder, "run-dir"):
        try:
            outcome = run_in_folder(found, settings, folder, progress)
        except UserError:
            raise
        except BaseException as error:  # Ctrl-C too
            error.add_note(f"results so far are in {folder}")
            raise
    return AppResult(folder, outcome)


def _server_or_folder(app: Any, server_app: Any) -> Any:
    if server_app is None:
        return app
    if app is not None:
        raise not_allowed("app", app, "none: server_app is given")
    if not isinstance(server_app, ServerApp):
        raise not_allowed("server_app", server_app, "a ServerApp")
    return server_app


def _app(app: Any, client_app: Any, run_config: Mapping[str, Any] | Sequence[str]) -> FlowerApp:
    if isinstance(app, ServerApp):
        if not isinstance(client_app, ClientApp):
            raise not_allowed("client_app", client_app, "a ClientApp, with a ServerApp as app")
        if not isinstance(run_config, Mapping):
            if run_config:
                raise not_allowed("run_config", run_config, "a mapping, with a ServerApp as app")
            run_config = {}
        return app_of(app, client_app, run_config)
    if not isinstance(app, str | PathLike):
        raise not_allowed("app", app, "the folder of a Flower app, or a ServerApp")
    if client_app is not None:
        raise not_allowed("client_app", client_app, "none: the app in a folder has its own")
    return app_in(Path(fspath(app)), run_config)


def _folder(run_dir: str | PathLike[str] | None) -> Path:
    if run_dir is None:
        return default_run_folder()
    if not isinstance(run_dir, str | PathLike):
        raise not_allowed("run_dir", run_dir, "a folder")
    prepare_run_folder(folder := Path(run_dir))
    return folder
