"""What is printed and logged while it is collected, and where it goes afterwards."""

import io
import logging
import sys

from fedbn_flower.runtime.collected_output import collected_output, logs_to


def test_prints_and_logs_are_collected_and_afterwards_not(capsys):
    with collected_output() as text:
        print("one")
        print("two", file=sys.stderr)
        logging.getLogger("flwr").warning("three")
    print("four")
    assert text.getvalue().startswith("one\ntwo\n")
    assert "three" in text.getvalue()
    assert "four" not in text.getvalue()
    assert capsys.readouterr().out == "four\n"


def test_handlers_get_their_streams_back():
    mine, other, text = io.StringIO(), io.StringIO(), io.StringIO()
    logger = logging.getLogger("of a test")
    for stream in (mine, other):
        logger.addHandler(logging.StreamHandler(stream))
    with logs_to(text, of=(mine,)):
        logger.warning("a")
    logger.warning("b")
    assert (text.getvalue(), mine.getvalue(), other.getvalue()) == ("a\n", "b\n", "a\nb\n")
    logger.handlers.clear()
