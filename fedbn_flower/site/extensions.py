"""Call the extensions' hooks at a site: they change outgoing records, and answer messages of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message

from fedbn_flower.clients.returned import WrongResult

from ..config.named_algorithms import EXTENSION, extension_classes, extension_names
from ..config.run_config import RunConfig
from ..core.errors import RunFailed
from ..core.ground.wire import CONFIG, EXTENSIONS
from ..core.process_cache import process_cache
from ..extensions import AtClient, Outgoing, SiteHook
from ..extensions.at_site import AddsAnswers, Record
from ..names import as_user_error, short


def sent_by_client(outgoing: Outgoing, at: AtClient) -> Outgoing:
    """Return a client's update as it is sent: passed through each extension in turn, towards the wire."""
    for name, cls in reversed(_hooks(at.config, at.asked).items()):
        with as_user_error(EXTENSION.key, name, RunFailed):
            outgoing = cls.trained(outgoing, at)
            if not isinstance(outgoing, Outgoing):
                raise WrongResult(cls, "trained", outgoing, "Outgoing")
    return outgoing


def reported_by_client(
    num_examples: int, metrics: Mapping[str, Any], at: AtClient
) -> Mapping[str, Record] | None:
    """Return the records that replace a client's evaluation; None to send it unchanged."""
    hooks = _hooks(at.config, at.asked).values()
    found = (cls.evaluated(num_examples, metrics, at) for cls in hooks)
    return next((records for records in found if records is not None), None)


def group_sum_in(config: RunConfig) -> AddsAnswers | None:
    """Return an extension's sum of a group's answers; None if the server's rule sums them."""
    all_names = {EXTENSIONS: ",".join(map(short, extension_names(config.extension)))}
    return next((one for cls in _hooks(config, all_names).values() if (one := cls.group_sum(config))), None)


def answered_by_extension(message: Message, context: Context, config: RunConfig) -> Message | None:
    """Return the answer to a message that an extension sent; None for any other message."""
    asked: Mapping[str, Any] = message.content.config_records.get(CONFIG, {})
    found = (cls.answer(message, context, config) for cls in _hooks(config, asked).values())
    return next((answer for answer in found if answer is not None), None)


def _hooks(config: RunConfig, asked: Mapping[str, Any]) -> dict[str, type[SiteHook]]:
    """Return the extensions that act at a site, ordered from the wire inwards.

    Of the user's extensions only those are loaded that the message names.
    """
    needed = str(asked.get(EXTENSIONS, "")).split(",")
    return _at_site(config, tuple(n for n in extension_names(config.extension) if short(n) in needed))


@process_cache(maxsize=64)  # every message asks for its run's, three times
def _at_site(config: RunConfig, own: tuple[str, ...]) -> dict[str, type[SiteHook]]:
    classes = extension_classes(config.to_user_config(), own)
    return {name: cls for name, cls in classes.items() if issubclass(cls, SiteHook)}
