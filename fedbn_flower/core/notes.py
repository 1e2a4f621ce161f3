"""Notes on a dataset, shown before a run: what is learnt, from what, by whom, and what is left out."""

from typing import Literal, NamedTuple, get_args

Row = Literal["target", "inputs", "examples", "clients", "left out", "training"]
ROWS: tuple[Row, ...] = get_args(Row)
"""The rows of the table that is shown before a run, in their order."""
WITHOUT_TEST = "no test "
"""How a note begins that says what is held out, where no test set is given."""

TESTED_ON = "each client is evaluated on"
"""How a note begins that says on whose test examples."""
GROUPED = "groups:"
"""How a note begins that says which examples stay together in every split."""


class Note(NamedTuple):
    """One line of the table that is shown before a run.

    Parameters
    ----------
    row : Row
        The row that it stands in.
    text : str
        What was found or done; no full stop.
    decided_by : str
        Where this was guessed: the key that decides it, perhaps with a value, such as ``label-column``.
    """

    row: Row
    text: str
    decided_by: str = ""

    @property
    def line(self) -> str:
        """The text, marked if it is a guess."""
        return f"{self.text} (guessed; {self.decided_by} decides)" if self.decided_by else self.text

    def __str__(self) -> str:
        return f"{self.row}: {self.line}"


class TestedOn(NamedTuple):
    """Whether each client is evaluated on its own held-out examples, and why; no reason if it was set
    explicitly.
    """

    locally: bool
    why: str = ""

    @property
    def eval_data(self) -> str:
        """The value of ``eval-data`` that this is."""
        return "local" if self.locally else "global"

    @property
    def note(self) -> Note:
        """The line shown before the first round."""
        text = f"{TESTED_ON} {'its own' if self.locally else 'all'} test examples"
        if not self.why:
            return Note("examples", text)
        return Note("examples", f"{text}, since {self.why}", "eval-data")
