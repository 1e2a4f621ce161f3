"""Agreement of masks case by case: by hand, by brute force over pairs of pixels, and by MONAI."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.spatial.distance import cdist

from clients import Segmentation
from clients.problems.segmentation import VOID, slice_numbers
from clients.problems.surfaces import (
    MOST_PIXELS,
    agreement,
    agreement_by_class,
    fullest_slices,
    shown_cases,
    thinned,
)

NAN = float("nan")
SHAPES = array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=6)


def square(row, column, shape=(8, 9), side=4):
    mask = np.zeros(shape, bool)
    mask[row : row + side, column : column + side] = True
    return mask


def test_a_square_that_is_shifted_by_one_column():
    """Of 16 pixels 12 are in both. Of either ring of 12 pixels, the 4 of the outer column and the 2 amid the
    inner one are 1 away from the other ring, the others on it."""
    pair = square(2, 2), square(2, 3)
    assert agreement(*pair, tolerance=1) == (0.75, 1.0, 1.0)
    assert agreement(*pair, tolerance=0.99) == (0.75, 0.5, 1.0)


@pytest.mark.parametrize("shape", [(5, 6), (3, 4, 5)])
def test_empty_masks(shape):
    empty, some = np.zeros(shape, bool), np.zeros(shape, bool)
    some[1, 1] = True
    np.testing.assert_equal(agreement(empty, empty), (NAN, NAN, NAN))
    np.testing.assert_equal(agreement(empty, some), (0.0, 0.0, NAN))
    np.testing.assert_equal(agreement(some, empty), (0.0, 0.0, NAN))


def surface(mask):
    """Pixels of which a neighbour along an axis is not in the mask, or beyond the image."""
    found = []
    for place in map(tuple, np.argwhere(mask)):
        for axis, step in product(range(mask.ndim), (-1, 1)):
            beside = list(place)
            beside[axis] += step
            outside = not 0 <= beside[axis] < mask.shape[axis]
            if outside or not mask[tuple(beside)]:
                found.append(place)
                break
    return np.array(found, float)


def brute_force(prediction, reference, spacing, tolerance):
    a, b = (surface(mask) * spacing for mask in (prediction, reference))
    distances = cdist(a, b)
    to_b, to_a = distances.min(1), distances.min(0)
    close = (to_b <= tolerance + 1e-9).sum() + (to_a <= tolerance + 1e-9).sum()
    dice = 2 * (prediction & reference).sum() / (prediction.sum() + reference.sum())
    return dice, close / (len(a) + len(b)), max(np.quantile(to_b, 0.95), np.quantile(to_a, 0.95))


def pairs(shape):
    return st.tuples(arrays(bool, shape), arrays(bool, shape))


@settings(deadline=None)
@given(SHAPES.flatmap(pairs), st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=3), st.floats(0, 4))
def test_it_is_brute_force_over_all_pairs_of_pixels(masks, spacing, tolerance):
    prediction, reference = masks
    if prediction.any() and reference.any():
        sides = spacing[: prediction.ndim]
        expected = brute_force(prediction, reference, sides, tolerance)
        assert agreement(prediction, reference, sides, tolerance) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(20, 24), (8, 10, 12)])
def test_it_is_monais(shape):
    metrics = pytest.importorskip("monai.metrics")
    rng, spacing = np.random.default_rng(0), (2.0, 0.5, 1.0)[: len(shape)]
    for _ in range(5):
        masks = [np.zeros(shape, bool) for _ in range(2)]
        for mask in masks:
            corner = rng.integers(0, 4, len(shape))
            mask[tuple(slice(c, c + rng.integers(3, 6)) for c in corner)] = True
        given = [torch.tensor(mask)[None, None].float() for mask in masks]
        tolerance = 1.0
        distance = metrics.compute_hausdorff_distance(*given, True, percentile=95, spacing=spacing)
        surfaces = metrics.compute_surface_dice(*given, [tolerance], True, spacing=spacing)
        _, found, hd95 = agreement(*masks, spacing, tolerance)
        assert hd95 == pytest.approx(distance.item(), rel=1e-6)
        assert found == pytest.approx(surfaces.item(), rel=1e-6)


def test_each_class_is_one_against_the_rest():
    """Class 1 is shifted, class 2 is missed, class 3 does not occur."""
    reference, prediction = np.zeros((8, 9), np.uint8), np.zeros((8, 9), np.uint8)
    reference[square(2, 0)], prediction[square(2, 1)] = 1, 1
    reference[0, 8] = 2
    values, pixels = agreement_by_class(prediction, reference, 4)
    np.testing.assert_equal(values, [[0.75, 1, 1], [0, 0, NAN], [NAN, NAN, NAN]])
    assert pixels.tolist() == [[16, 16], [1, 0], [0, 0]]


def outputs(masks, classes):
    return torch.nn.functional.one_hot(torch.tensor(masks), classes).movedim(-1, 1).float()


def test_a_case_has_the_mean_over_its_classes_and_each_of_them():
    problem, names = Segmentation(), ["background", "a", "b"]
    said, truth = np.zeros((2, 8, 9), np.int64), np.zeros((2, 8, 9), np.int64)
    truth[0][square(2, 0)], said[0][square(2, 1)] = 1, 1
    truth[0, 0, 8] = 2
    found = problem.of_each_case(outputs(said, 3), torch.tensor(truth))
    scores, pixels = problem.case_columns(names)
    kinds = ["case-dice", "surface-dice", "hd95"]
    assert scores == [*kinds, *(f"{k}-a" for k in kinds), *(f"{k}-b" for k in kinds)]
    assert pixels[:4] == [
        "reference-pixels", "predicted-pixels", "reference-pixels-a", "predicted-pixels-a",
    ]  # fmt: skip
    np.testing.assert_equal(found["scores"][0], [0.375, 0.5, 1, 0.75, 1, 1, 0, 0, NAN])
    np.testing.assert_equal(found["scores"][1], [NAN] * 9)
    assert found["targets"].tolist() == [[17, 16, 16, 16, 1, 0], [0] * 6]


@pytest.mark.parametrize("classes", [2, 30])
def test_two_classes_and_very_many_have_no_columns_by_class(classes):
    problem = Segmentation()
    scores, _ = problem.case_columns(list(map(str, range(classes))))
    masks = np.zeros((1, 4, 4), np.int64)
    masks[0, :2] = classes - 1
    found = problem.of_each_case(outputs(masks, classes), torch.tensor(masks))
    assert scores == ["case-dice", "surface-dice", "hd95"]
    assert found["scores"].tolist() == [[1, 1, 0]]
    assert found["targets"].tolist() == [[8, 8]]


def test_void_pixels_are_background_in_both_masks():
    """What is said where the reference is void counts for nothing."""
    truth, said = np.zeros((1, 8, 9), np.int64), np.zeros((1, 8, 9), np.int64)
    truth[0][square(2, 2)], said[0][square(2, 2)] = 1, 1
    said[0, 0] = 1
    truth[0, 0] = 255
    found = Segmentation().of_each_case(outputs(said, 2), torch.tensor(truth, dtype=torch.uint8))
    assert found["scores"].tolist() == [[1, 1, 0]]
    assert found["targets"].tolist() == [[16, 16]]


@pytest.mark.parametrize(
    ("spacing", "tolerance", "expected"),
    [((), None, 1), ((3.0, 0.5), None, 3), ((3.0, 0.5), 0.0, 0), ((), 2.5, 2.5)],
)
def test_the_tolerance_is_by_default_the_largest_side_of_a_voxel(spacing, tolerance, expected):
    problem = Segmentation().with_distances(spacing, tolerance)
    assert (problem.spacing, problem.tolerance) == (spacing, expected)


def test_the_slice_with_most_that_is_inside():
    inside = np.zeros((3, 5, 2, 2), bool)
    inside[0, 4] = True
    inside[1, 1, 0], inside[1, 3, 1] = True, True  # as near to the middle: the first
    assert fullest_slices(inside).tolist() == [4, 1, 2]
    assert thinned(np.zeros((300, 130, 4))).shape == (300, 65, 2)
    assert slice_numbers(np.where(inside, 1, 0).astype(np.uint8)).tolist() == [4, 1, 2]
    assert slice_numbers(np.where(inside, VOID, 0).astype(np.uint8)).tolist() == [2, 2, 2]


def test_the_best_the_median_and_the_worst_cases():
    dice = np.array([NAN, *np.arange(20) / 20])
    assert shown_cases(dice).tolist() == [20, 19, 18, 12, 11, 10, 3, 2, 1]
    assert shown_cases(dice[:10]).tolist() == [*range(9, 0, -1)]
    assert shown_cases(np.full(3, NAN)).tolist() == []
    assert shown_cases(np.array([0.5, 0.5, 0.7])).tolist() == [2, 0, 1]


@pytest.mark.parametrize(("side", "found"), [(MOST_PIXELS, 128), (129, 65), (512, 128), (1000, 125)])
def test_no_side_of_a_slice_is_longer_than_shown(side, found):
    assert thinned(np.zeros((2, side, side))).shape == (2, found, found)
