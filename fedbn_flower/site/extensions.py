"""What extensions do at a site: they change what is sent, and answer messages of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message

from fedbn_flower.clients.returned import WrongResult

from ..config.extension_names import EXTENSION, extension_names
from ..config.run_config import RunConfig
from ..core.errors import RunFailed
from ..core.ground.wire import EXTENSIONS
from ..extensions import AtClient, Outgoing
from ..extensions.base import AddsAnswers, Record
from ..names import as_user_error, short


def sent_by_client(outgoing: Outgoing, at: AtClient) -> Outgoing:
    """Return what a client sends in the place of what it trained: extensions have it in turn, to the wire.

    Of the run's own ones only those are loaded here that the server says have to do with it.
    """
    needed = str(at.asked.get(EXTENSIONS, "")).split(",")
    own = [name for name in extension_names(at.config.extension) if short(name) in needed]
    built_in = at.config.built_in_extensions
    classes = {cls.__name__: cls for cls in built_in} | {name: EXTENSION.find(name) for name in own}
    for name, cls in reversed(classes.items()):
        with as_user_error(EXTENSION.key, name, RunFailed, but=(Exception,) if cls in built_in else ()):
            outgoing = cls.trained(outgoing, at)
            if not isinstance(outgoing, Outgoing):
                raise WrongResult(cls, "trained", outgoing, "Outgoing")
    return outgoing


def reported_by_client(
    num_examples: int, metrics: Mapping[str, Any], at: AtClient
) -> Mapping[str, Record] | None:
    """Return what a client sends in the place of what it found of a model; None to send that."""
    found = (cls.evaluated(num_examples, metrics, at) for cls in at.config.built_in_extensions)
    return next((records for records in found if records is not None), None)


def group_sum_in(config: RunConfig) -> AddsAnswers | None:
    """Return what adds a group's answers in the place of the server's rule; None if that does."""
    return next((one for cls in config.built_in_extensions if (one := cls.group_sum(config))), None)


def answered_by_extension(message: Message, context: Context, config: RunConfig) -> Message | None:
    """Return a client's answer to a message of an extension's own, or None to others."""
    found = (cls.answer(message, context, config) for cls in config.built_in_extensions)
    return next((answer for answer in found if answer is not None), None)
