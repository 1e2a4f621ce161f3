"""Partitioners of `flwr_datasets` by the names of their classes."""

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
OF_COLUMNS = "Vertical"
"""What the names of those begin with that divide columns, not rows."""
OF_VALUES = "ContinuousPartitioner"
"""The one that takes ``partition_by`` for numbers; for the others they are names of groups."""
UNTOLD = "IdToSizeFncPartitioner"
"""It takes a function."""


@dataclass(frozen=True)
class NamedPartitioner:
    """A class of `flwr_datasets.partitioner` and its arguments, as Python literals.

    ``num_partitions`` is the number of clients, ``seed`` the run's, and ``partition_by`` the class, if they
    are not given; a ``partition_by`` that is given is a column of the dataset.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, text: str) -> "NamedPartitioner":
        """Parse ``NAME:KEY=VALUE,...``.

        Raises
        ------
        UserError
            When there is no such class, or it does not take such arguments.
        """
        name, _, words = text.partition(":")
        names = _names()
        if name not in names:
            raise unknown_name("partition", name, names)
        try:
            call = ast.parse(f"f({words})", mode="eval").body
            assert isinstance(call, ast.Call)
            arguments = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
            positional = bool(call.args) or "None" in arguments  # which is ** of something
        except (SyntaxError, ValueError, AssertionError):
            arguments, positional = {}, True
        if positional:
            raise not_allowed("partition", text, f"{name}:KEY=VALUE,... with values as Python writes them")
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
        """The column that it divides by; empty for the class, or nothing."""
        return str(dict(self.arguments).get("partition_by", ""))

    @property
    def needs_classes(self) -> bool:
        """Whether it divides by the class."""
        return "partition_by" in _signature(self.name).parameters and not self.column

    def divide(self, values: NDArray[np.int64] | NDArray[np.str_], num_clients: int, seed: int) -> list[Rows]:
        """The clients' rows, by the class of each row or by what the column says of it.

        Raises
        ------
        UserError
            When it fails, makes another number of partitions, an empty one, or some that overlap.
        """
        by = values if self.name == OF_VALUES else np.unique(values, return_inverse=True)[1]
        shares = [np.asarray(share, np.int64) for share in self._shares(by, num_clients, seed)]
        if len(shares) != num_clients:
            raise not_allowed("num-clients", num_clients, f"{len(shares)}, the partitions of {self.name}")
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
        given = {key: _as_array(value) for key, value in self.arguments} | {"partition_by": "by"}
        arguments = {**filled, **given}
        known = _signature(self.name).parameters
        try:
            with warnings.catch_warnings(action="ignore"):  # what is left out, we tell
                partitioner = _classes()[self.name](**{k: v for k, v in arguments.items() if k in known})
                partitioner.dataset = Dataset.from_dict({"row": np.arange(len(by)), "by": by})
                return [partitioner.load_partition(i)["row"][:] for i in range(partitioner.num_partitions)]
        except Exception as error:  # they raise what comes
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"partition: {self.name} among {num_clients} clients failed: {reason}") from error


def _as_array(value: Any) -> Any:
    """A list of lists as a matrix."""
    return np.asarray(value) if isinstance(value, list) and value and isinstance(value[0], list) else value


def _classes() -> dict[str, Callable[..., Any]]:
    from flwr_datasets import partitioner  # seconds, for those only who name one

    found = {name: cls for name, cls in vars(partitioner).items() if isclass(cls)}
    base = partitioner.Partitioner
    return {n: c for n, c in found.items() if issubclass(c, base) and c is not base}


def _names() -> list[str]:
    return [name for name in _classes() if not name.startswith(OF_COLUMNS) and name != UNTOLD]


def _signature(name: str) -> Signature:
    return signature(_classes()[name])
