"""The command ``app``: run any Flower app."""

import sys
import traceback
from bdb import BdbQuit
from collections.abc import Sequence

from ..cli.argument_parser import Parser
from ..core.errors import RunFailed, UserError
from ..core.text import number_of

FAILED, INTERRUPTED = 1, 130
OF_FLWR_RUN = {
    "--stream": "the log is always shown",
    "--federation": "nodes are virtual, and of this machine",
    "--federation-config": "write --num-supernodes and --workers",
    "--format": "results are in the run's folder",
}
"""Its flags that need a SuperLink, and what to do."""


def app(arguments: Sequence[str]) -> int:
    """Run ``app PATH [--run-config "key=value ..."] [--num-supernodes N] ...``; return the exit status.

    Raises
    ------
    UserError
        For a mistake in the arguments or in the app's ``pyproject.toml``, before anything starts.
    """
    for word in arguments:
        if meant := OF_FLWR_RUN.get(word.partition("=")[0]):
            raise UserError(f"app: {word} belongs to flwr run; {meant}")
    options = vars(app_parser().parse_args(arguments))
    from .run_app import run_app

    options["run_config"] = options["run_config"] or ()
    try:
        result = run_app(options.pop("app"), **options)
    except (UserError, BrokenPipeError):
        raise
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("\n".join(["interrupted", *getattr(error, "__notes__", ())])) from error
    except SystemExit as error:
        print(*getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        raise
    except BdbQuit:
        print("ended in the debugger", file=sys.stderr)
        return INTERRUPTED
    except RunFailed as error:
        print(f"failed: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return FAILED
    except Exception:
        traceback.print_exc()
        return FAILED
    where = ", ".join(f"{key} {value}" for key, value in result.place.items())
    failed = f", {number_of(result.failures, 'failed answer')}" if result.failures else ""
    print(f"{number_of(result.rounds, 'round')} in {result.seconds:.1f} s ({where}){failed}")
    print(f"results are in {result.folder}")
    return 0


def app_parser() -> Parser:
    """Return the parser of the command's arguments."""
    parser = Parser(
        "fedbn-sim app",
        description="Run a Flower app, unchanged, on virtual nodes of this machine.",
        allow_abbrev=False,
    )
    parser.add_argument("app", metavar="PATH", help="the app's folder, which has its pyproject.toml")
    parser.add_argument(
        "--run-config",
        "-c",
        metavar='"KEY=VALUE ..."',
        action="append",
        help="values in place of those of the app, as flwr run takes them; or a TOML file",
    )
    parser.add_argument(
        "--num-supernodes", metavar="N", type=int, help="virtual nodes [as its pyproject.toml says, else 2]"
    )
    parser.add_argument(
        "--backend",
        metavar="NAME",
        default="auto",
        help="inline (one process and thread), ray, or auto: inline, then ray once it saves time [auto]",
    )
    parser.add_argument("--workers", metavar="N", type=int, default=0, help="Ray's workers [one a core]")
    parser.add_argument("--seed", metavar="N", type=int, help="of random, NumPy and PyTorch [drawn]")
    parser.add_argument("--run-dir", metavar="DIR", help="new folder for the results [a new one under runs/]")
    parser.add_argument("--track", metavar="NAME", default="none", help="tensorboard, mlflow or wandb [none]")
    return parser
