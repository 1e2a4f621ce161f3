"""A parser of arguments whose mistakes are a `UserError`."""

import argparse
from typing import NoReturn

from ..core.errors import UserError

PROGRAM = "fedbn-sim"


class Parser(argparse.ArgumentParser):
    """Its errors begin with the command, if ``prog`` is ``fedbn-sim COMMAND``."""

    def error(self, message: str) -> NoReturn:
        _, _, command = self.prog.partition(f"{PROGRAM} ")
        raise UserError(f"{command}: {message}" if command else message)
