"""What a node answers to the steps of secure aggregation, and what its owner demands of a run."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfigValue

from ...core.errors import not_allowed, unknown_name
from ...privacy.floors import Refused
from ...privacy.private_run import PrivateRun
from . import words
from .keys import ON
from .private import least_at_client
from .site import advertised, helped, shared_out

PREFIX = "secagg-"
REQUIRED, LEAST = "secagg-required", "secagg-min"


def check_site(node_config: Mapping[str, UserConfigValue], run: PrivateRun) -> None:
    """Refuse a run that asks for less than the owner of a site demands in the node config.

    Raises
    ------
    UserError
        For a key or a value of the node config that is not allowed; `Refused` for the run.
    """
    given = {key: value for key, value in node_config.items() if key.startswith(PREFIX)}
    if unknown := sorted(given.keys() - {REQUIRED, LEAST}):
        raise unknown_name("node-config", unknown[0], (REQUIRED, LEAST))
    required, least = given.get(REQUIRED, False), given.get(LEAST, 0)
    if type(required) is not bool:
        raise not_allowed(REQUIRED, required, "true or false (in the node config)")
    if type(least) is not int or (LEAST in given and least < 2):
        raise not_allowed(LEAST, least, "a whole number from 2 on (in the node config)")
    if (required or least) and run.secagg != ON:
        key = REQUIRED if required else LEAST
        raise Refused(f"secagg: {run.secagg!r} is not allowed at this site; expected {ON!r} ({key})")
    if run.secagg_min < least:
        wanted = f"at least {least} ({LEAST} of its node config)"
        raise Refused(f"secagg-min: {run.secagg_min} is not allowed at this site; expected {wanted}")


def is_step(message: Message) -> bool:
    """Return whether a message is a step of secure aggregation."""
    return words.SECAGG in message.content


def answer_step(message: Message, context: Context, run: PrivateRun) -> Message:
    """Answer a step: advertise keys, share out secrets, or help to unmask.

    Raises
    ------
    UserError
        As `check_site`; when the client does not do it.
    """
    check_site(context.node_config, run)
    asked, state = message.content[words.SECAGG], context.state
    if not isinstance(asked, ConfigRecord) or run.secagg != ON:
        raise Refused("secagg: this run has no secure aggregation")
    if (step := asked.get(words.STEP)) == words.ADVERTISE:
        found = ConfigRecord({words.KEYS: advertised(state)})
    elif step == words.SHARE:
        found = shared_out(state, asked, least_at_client(run))
    elif step == words.UNMASK:
        found = helped(state, asked)
    else:
        raise Refused("secagg: there is no such step")
    return Message(RecordDict({words.SECAGG: found}), reply_to=message)
