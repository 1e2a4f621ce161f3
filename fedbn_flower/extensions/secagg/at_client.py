"""What a node answers to the steps of secure aggregation."""

from __future__ import annotations

import contextlib

from flwr.app import ConfigRecord, Context, Message, RecordDict

from ...privacy.floors import Refused, check_secagg
from ...privacy.private_run import PrivateRun
from . import words
from .keys import ON
from .private import least_at_client
from .site import advertised, helped, shared_out


def is_step(message: Message) -> bool:
    """Return whether a message is a step of secure aggregation."""
    return words.SECAGG in message.content


def answer_step(message: Message, context: Context, run: PrivateRun) -> Message:
    """Answer a step: advertise keys, share out secrets, or help to unmask.

    Raises
    ------
    UserError
        As `check_secagg`; when the client does not do it.
    """
    check_secagg(context.node_config, run)
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
    content = RecordDict({words.SECAGG: found})
    upcoming = message.content.get(words.UPCOMING)
    if step == words.UNMASK and isinstance(upcoming, ConfigRecord):
        with contextlib.suppress(Refused):  # it is then not in the next sum, and this one is unmasked
            content[words.UPCOMING] = shared_out(state, upcoming, least_at_client(run))
    return Message(content, reply_to=message)
