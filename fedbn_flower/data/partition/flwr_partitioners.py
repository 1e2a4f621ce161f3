"""Use the partitioners of `flwr_datasets` by class name."""

import ast
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Signature, isclass, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed, unknown_name

Rows = NDArray[np.int64]
VERTICAL = "Vertical"
"""The prefix of partitioners that divide columns, not rows."""
CONTINUOUS = "ContinuousPartitioner"
"""The partitioner that reads ``partition_by`` as numbers; for all others it names groups."""
UNSUPPORTED = "IdToSizeFncPartitioner"
"""Its argument is a function, which text cannot express."""


@dataclass(frozen=True)
class NamedPartitioner:
    """A class of `flwr_datasets.partitioner` and its arguments, as Python literals.

    Unless given, ``num_partitions`` is the number of clients, ``seed`` the run's, and ``partition_by`` the
    class. If given, ``partition_by`` is a column of the dataset.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, text: str) -> "NamedPartitioner":
        """Parse ``NAME:KEY=VALUE,...``.

        Raises
        ------
        UserError
            When there is no such class, or it does not accept these arguments.
        """
        name, _, words = text.partition(":")
        names = _names()
        if name not in names:
            raise unknown_name("partition", name, names)
        try:
            call = ast.parse(f"f({words})", mode="eval").body
            assert isinstance(call, ast.Call)
            arguments = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
            positional = bool(call.args) or "None" in arguments  # the key of **something
        except (SyntaxError, ValueError, AssertionError):
            arguments, positional = {}, True
        if positional:
            raise not_allowed("partition", text, f"{name}:KEY=VALUE,... with Python literals as values")
        known = _signature(name)
        for key in arguments:
            if key not in known.parameters:
                raise unknown_name(f"partition: {name}", key, known.parameters)
        filled = ("num_partitions", "partition_by", "seed")
        required = [
            p.name for p in known.parameters.values() if p.default is p.empty and p.name not in filled
        ]
        if missing := [key for key in required if key not in arguments]:
            raise not_allowed("partition", text, f"{name} with {', '.join(f'{key}=...' for key in missing)}")
        return cls(name, tuple(arguments.items()))

    @property
    def column(self) -> str:
        """The column to divide by; empty if it divides by the class, or by nothing."""
        return str(dict(self.arguments).get("partition_by", ""))

    @property
    def needs_classes(self) -> bool:
        """Whether the partitioner divides by the class."""
        return "partition_by" in _signature(self.name).parameters and not self.column

    def divide(self, values: NDArray[np.int64] | NDArray[np.str_], num_clients: int, seed: int) -> list[Rows]:
        """Return each client's rows, divided by ``values``: the class or the column's value of each row.

        Raises
        ------
        UserError
            When it fails, or makes a wrong number of partitions, an empty one, or overlapping ones.
        """
        by = values if self.name == CONTINUOUS else np.unique(values, return_inverse=True)[1]
        shares = [np.asarray(share, np.int64) for share in self._shares(by, num_clients, seed)]
        if len(shares) != num_clients:
            raise not_allowed(
                "num-clients", num_clients, f"{len(shares)}, the number of partitions of {self.name}"
            )
        if empty := [i for i, share in enumerate(shares) if not len(share)]:
            raise UserError(f"partition: {self.name} leaves client {empty[0]} without examples")
        if len(np.unique(np.concatenate(shares))) < sum(map(len, shares)):
            raise UserError(f"partition: {self.name} gives some examples to several clients")
        return shares

    def _shares(self, by: NDArray, num_clients: int, seed: int) -> list[Any]:
        from datasets import Dataset
        from datasets.utils.logging import disable_progress_bar

        disable_progress_bar()
        filled = {"num_partitions": num_clients, "partition_by": "by", "seed": seed}
        arguments = {key: _as_array(value) for key, value in self.arguments} | {"partition_by": "by"}
        arguments = {**filled, **arguments}
        known = _signature(self.name).parameters
        try:
            with warnings.catch_warnings(action="ignore"):  # the run itself notes what is left out
                partitioner = _classes()[self.name](**{k: v for k, v in arguments.items() if k in known})
                partitioner.dataset = Dataset.from_dict({"row": np.arange(len(by)), "by": by})
                return [partitioner.load_partition(i)["row"][:] for i in range(partitioner.num_partitions)]
        except Exception as error:  # partitioners raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"partition: {self.name} among {num_clients} clients failed: {reason}") from error


def _as_array(value: Any) -> Any:
    """Convert a list of lists to a matrix."""
    return np.asarray(value) if isinstance(value, list) and value and isinstance(value[0], list) else value


def _classes() -> dict[str, Callable[..., Any]]:
    from flwr_datasets import partitioner  # imported late: takes seconds

    found = {name: cls for name, cls in vars(partitioner).items() if isclass(cls)}
    base = partitioner.Partitioner
    return {n: c for n, c in found.items() if issubclass(c, base) and c is not base}


def _names() -> list[str]:
    return [name for name in _classes() if not name.startswith(VERTICAL) and name != UNSUPPORTED]


def _signature(name: str) -> Signature:
    return signature(_classes()[name])
