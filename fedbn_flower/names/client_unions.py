"""Several clients in one: ``fedbn+fedper`` keeps at home what either does, and has the methods of both."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from functools import lru_cache
from itertools import combinations

from fedbn_flower.clients import CLIENTS, FedAvgClient
from fedbn_flower.clients.modules.lazy_torch import nn
from fedbn_flower.clients.returned import kept_at_home

from ..core.errors import not_allowed
from ..core.ground.settings import declared

JOIN = "+"
TRAINS = "what a round trains"
"""What a client decides whose ``train`` need not call ``super().train``."""

Client = type[FedAvgClient]


def parts(name: str, known: Container[str] = CLIENTS) -> list[str]:
    """The names that a ``+`` joins, ``known`` ones or others. One in a file's path joins nothing."""
    found: list[str] = []
    words = name.split(JOIN)
    begun = 0
    for i in range(len(words)):
        part = JOIN.join(words[begun : i + 1])
        if ":" in part or part in known:
            found.append(part)
            begun = i + 1
    return found + words[begun:]


def union(members: Mapping[str, Client], name: str) -> Client:
    """A client that is all of the members, which ``name`` joins.

    Raises
    ------
    UserError
        For two that do not go together.
    """
    if len(members) < len(parts(name)):
        raise not_allowed("client", name, "no name twice")
    for (one, cls), (other, another) in combinations(members.items(), 2):
        for inner, outer in ((one, other), (other, one)):
            if issubclass(members[outer], members[inner]):
                raise not_allowed("client", name, f"only {outer!r}, which is {inner!r} and more")
        if both := _decided(cls) & _decided(another):
            wanted = f"only one of {one!r} and {other!r}, which both decide about {min(both)}"
            raise not_allowed("client", name, wanted)
        if clash := _clash(cls, another):
            raise not_allowed("client", name, f"only one of {one!r} and {other!r}: they differ in {clash}")
    return _made(tuple(members.values()), f"Keeps at home what {' and '.join(members)} do.")


def _decided(cls: Client) -> frozenset[str]:
    return cls.also_decides.union(filter(None, [cls.decides]))


def _clash(one: Client, other: Client) -> str:
    """A setting or a requirement in which two clients differ; empty if there is none."""
    settings, others = declared(one), declared(other)
    for attribute in settings.keys() & others.keys():
        if settings[attribute] is not others[attribute]:
            return f"the setting {attribute!r}"
    needs, needed = (getattr(cls, "requires", {}) for cls in (one, other))
    for key in needs.keys() & needed.keys():
        if not set(needs[key]) & set(needed[key]):
            return f"what they require of {key!r}"
    return ""


@lru_cache(maxsize=64)
def _made(classes: tuple[Client, ...], words: str) -> Client:
    name = JOIN.join(cls.__name__ for cls in classes)
    classes = tuple(sorted(classes, key=lambda cls: TRAINS in _decided(cls)))  # after it no other has a turn

    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset().union(*(kept_at_home(cls, model) for cls in classes))

    attributes = {
        "__doc__": words,
        "__module__": __name__,
        "local_entries": staticmethod(local_entries),
        "requires": _requirements(classes),
    }
    return type(name, classes, attributes)


def _requirements(classes: Collection[type]) -> dict[str, list[object]]:
    """What all of the classes require of the run's configuration."""
    found: dict[str, list[object]] = {}
    for cls in classes:
        for key, wanted in getattr(cls, "requires", {}).items():
            found[key] = [value for value in found.get(key, wanted) if value in wanted]
    return found
