"""Colours of the log."""

import io
import logging

import pytest
from flwr.common.logger import ConsoleHandler

from fedbn_flower.core import logs


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "no_colour", "coloured"),
    [(Terminal(), "", True), (Terminal(), "1", False), (io.StringIO(), "", False)],
)
def test_colours_are_for_terminals(stream, no_colour, coloured, monkeypatch):
    handler = ConsoleHandler(stream=stream)
    monkeypatch.setattr(logs.LOGGER, "handlers", [handler])
    monkeypatch.setenv("NO_COLOR", no_colour)
    logs.colour_in_terminals_only()
    handler.emit(logging.LogRecord("flwr", logging.WARNING, "", 0, "a line", None, None))
    assert "a line\n" in stream.getvalue()
    assert ("\x1b" in stream.getvalue()) == coloured
