"""The one writer of safetensors files."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes
from safetensors.numpy import load, save

from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.records import array_file as module
from fedbn_flower.records.array_file import array_file

from ...test_house import ROOT

X = np.arange(12.0).reshape(3, 4)
FORMS = {
    "Fortran": np.asfortranarray(X),
    "transposed": X.T,
    "solution of lstsq": np.linalg.lstsq(X.T @ X + np.eye(4), np.ones((4, 2)), rcond=None)[0],
    "backwards": X[::-1, ::-2],
    "every other": X[:, ::2],
    "foreign byte order": X.astype(">f4"),
    "broadcast": np.broadcast_to(np.float16(1), (2, 3)),
    "one number": np.array(3.0),
    "NumPy scalar": np.float32(2),
    "empty": np.empty((0, 3), np.int16),
    "not a number": np.array([np.nan, -0.0, np.inf]),
    "complex64": X.T.astype(np.complex64),
}


def test_arrays_of_any_layout_keep_their_values():
    found = load(array_file("file", FORMS))
    assert found.keys() == FORMS.keys()
    for name, array in FORMS.items():
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert found[name].dtype == array.dtype.newbyteorder("="), name


@given(arrays(scalar_dtypes(), array_shapes(min_dims=0)), st.randoms())
def test_an_array_is_written_by_value_or_named(array, random):
    axes = list(range(array.ndim))
    random.shuffle(axes)
    array = array.transpose(axes)[(slice(None, None, -1),) * array.ndim]
    found = load(array_file("file", {"kept": X, "tried": array}))
    np.testing.assert_array_equal(found["kept"], X)
    if "tried" in found:
        np.testing.assert_array_equal(found["tried"], array)
    else:
        assert array.dtype.kind in "cmMgSU" or array.dtype.itemsize > 8, array.dtype


@pytest.mark.parametrize(
    "lost",
    [np.ones(2, complex), np.ones(2, np.longdouble), np.array(["a"]), np.array([b"a"]), np.array([{}])],
)
def test_an_array_that_no_file_can_hold_costs_itself_alone(lost, caplog):
    clear_process_caches()
    for _ in range(2):
        with_metadata = array_file("model.safetensors", {"a": X.T, "lost": lost, "b": X}, {"round": "1"})
    assert load(with_metadata).keys() == {"a", "b"}
    assert b'"__metadata__":{"round":"1"}' in with_metadata
    (line,) = caplog.messages
    assert line.startswith(f"model.safetensors is written without 'lost' ({lost.dtype})")


@pytest.mark.parametrize("fault", [lambda x: x[::-1], lambda x: x.reshape(4, 3), np.float32])
def test_a_writer_that_scrambles_is_found_out(fault, monkeypatch):
    def scrambling(arrays, metadata):
        return save({name: np.ascontiguousarray(fault(array)) for name, array in arrays.items()}, metadata)

    assert module._has(X.dtype)
    monkeypatch.setattr(module, "save", scrambling)
    with pytest.raises(OSError, match="'w' is not what was to be written"):
        array_file("file", {"w": X})


def test_nothing_else_writes_such_files():
    writing = re.compile(r"from safetensors\S* import .*\b(save|serialize)")
    writers = {p.name for p in (ROOT / "fedbn_flower").rglob("*.py") if writing.search(p.read_text())}
    assert writers == {"array_file.py"}
