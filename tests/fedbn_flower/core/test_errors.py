"""What a user is told of an exception."""

import json

import pytest

from fedbn_flower.core.errors import described
from fedbn_flower.core.text import __file__ as ours


def raised_by(function):
    try:
        function()
    except Exception as error:
        return described(error)
    raise AssertionError("nothing was raised")


def reads():
    json.loads("{")


def test_the_line_is_the_users_where_a_library_raised():
    line = reads.__code__.co_firstlineno + 1
    assert raised_by(reads).endswith(f"(char 1) (test_errors.py, line {line})")


@pytest.mark.parametrize("file", [json.__file__, pytest.__file__, ours, "<string>"])
def test_code_that_no_user_wrote_has_no_line(file):
    namespace = {}
    exec(compile("def fails():\n    raise ValueError('no')", file, "exec"), namespace)
    try:
        namespace["fails"]()
    except ValueError as error:
        alone = error.with_traceback(error.__traceback__.tb_next)
    assert described(alone) == "ValueError: no"
