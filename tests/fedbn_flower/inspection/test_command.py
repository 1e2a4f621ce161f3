"""``inspect``: what it prints and writes, and what it refuses."""

import re

import numpy as np
import pytest

from fedbn_flower.cli import main
from fedbn_flower.inspection.figures import fullest_slices, image_rows, in_8_bits
from fedbn_flower.inspection.page import MAX_LISTED, Inspection
from fedbn_flower.job.inputs import inputs_of

from ..circles import circles, write_circles


@pytest.fixture
def inspected(tmp_path, cache_dir, capsys):
    """Runs the command and returns what it printed and the page."""

    def run(*words):
        to = tmp_path / "page"
        assert main(["inspect", *words, "--to", str(to), "--cache-dir", str(cache_dir)]) == 0
        assert [path.name for path in to.iterdir()] == ["inspect.html"]
        return capsys.readouterr().out, (to / "inspect.html").read_text()

    return run


@pytest.mark.slow
def test_two_silos(inspected, tmp_path):
    """Of digits 0-4 and 5-9: each has half of the classes, nearly equally frequent."""
    output, page = inspected("--dataset", "digits", "--partition", "silos:0-4,5-9")
    assert re.search(r"label skew, total variation +mean 0\.500, at most 0\.50\d", output)
    assert re.search(r"effective classes of a client +5\.00 of 10\.00", output)
    assert output.splitlines()[-1] == f"the page is {tmp_path / 'page' / 'inspect.html'}"
    for heading in ("Clients", "Features", "Images"):
        assert f"<h2>{heading}</h2>" in page
    assert page.count("<svg") == 3
    facts = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    assert facts == [("training examples", "1,437"), ("test examples", "360"), ("clients", "2")]
    assert "<td>label skew, total variation</td>" in page.partition("Measures of the division")[2]
    assert "Notes" not in page


@pytest.mark.usefixtures("drawn_figures")
def test_the_page_needs_no_network_and_says_what_a_run_would_say(inspected):
    output, page = inspected("--dataset", "digits", "--partition", "silos:3,8")
    line = "partition: each client has examples of only one class: alone it cannot tell classes apart"
    assert line in output
    assert line in page
    assert page.count("<script") == 1
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_masks_are_shown(inspected, tmp_path, configured):
    """The share of each class in each client's pixels, and outlines on the images."""
    sites = write_circles(tmp_path / "sites", ("train", "test"))
    output, page = inspected("--dataset", str(sites))
    shares = [circles(site)[1].mean() for site in (0, 1)]
    for name, share in zip(("lyon", "turin"), shares, strict=True):
        assert re.search(rf"{name} .* {1 - share:.1%} .* {share:.1%} ", output)
    assert "Lines are the outlines of the masks" in page
    inputs = inputs_of(configured(dataset=str(sites), partition="natural:folder", model="unet"))
    some = [inputs.dataset.train.columns[name][:3] for name in "xy"]
    figure = image_rows([some[0]], ["lyon"], [some[1]])
    assert [len(axes.collections) for axes in figure.axes] == [1, 1, 1]
    (paths,) = (figure.axes[0].collections[0].get_paths(),)
    inside = paths[0].contains_points([(j, i) for i in range(16) for j in range(16)])
    np.testing.assert_array_equal(inside.reshape(16, 16), some[1][0] == 1)


def test_of_volumes_the_slice_is_shown_in_which_most_is(inspected, tmp_path):
    masks = np.zeros((2, 5, 4, 4), np.uint8)
    masks[0, 1, :2] = 1
    masks[0, 3, 0, 0] = 2
    masks[1, :, 3] = 255
    volumes = np.arange(2 * 3 * 5 * 4 * 4).reshape(2, 3, 5, 4, 4)
    (some,), (of_masks,) = fullest_slices([volumes], [masks])
    np.testing.assert_array_equal(some, [volumes[0, :, 1], volumes[1, :, 2]])
    np.testing.assert_array_equal(of_masks, [masks[0, 1], masks[1, 2]])
    assert fullest_slices([volumes])[1] is None
    pytest.importorskip("nibabel", reason="needs nibabel, of the extra clinic")
    pytest.importorskip("fedbn_flower.clinic")
    from ..clinic.scan_files import write_nifti

    for site in ("lyon", "turin"):
        for i in range(5):
            for kind in ("images", "masks"):
                write_nifti(tmp_path / site / kind / f"{i}.nii.gz", masks[i % 2])
    _, page = inspected("--dataset", str(tmp_path))
    assert "1 x 4 x 4 x 5 values (channels, depth, height, width)" in page
    assert "one slice is drawn, that in which most is not background" in page


def test_images_of_16_bits_are_drawn_between_their_extremes():
    some = [np.array([[[[1200, 1408]]]], np.uint16), np.array([[[[1300, 1600]]]], np.uint16)]
    drawn = in_8_bits(some)
    assert [part.ravel().tolist() for part in drawn] == [[0, 133], [64, 255]]
    plain = [np.array([[[[3, 200]]]], np.uint8)]
    assert in_8_bits(plain)[0] is plain[0]
    assert len(image_rows(some, ["one", "two"]).axes) == 2


def test_labels_have_their_names_and_are_no_numbers_by_mistake(inspected, tmp_path):
    rows = [f"{i}.5,{i % 2},{i // 3 % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["age,Edema,Mass", *rows]))
    words = ["--dataset", str(tmp_path / "t.csv"), "--label-column", "Edema,Mass"]
    output, _ = inspected(*words, "--problem", "multi-label")
    assert "learnt as numbers" not in output
    assert "target Edema" in output


def test_the_division_is_that_of_the_run(configured):
    config = configured(partition="dirichlet:0.3", num_clients=5, seed=3, val_fraction=0.2)
    table = Inspection(inputs_of(config)).clients()
    partitions = inputs_of(config).partitions
    for number, row in enumerate(table.rows):
        found = dict(zip(table.header, row, strict=True))
        assert int(found["training examples"]) == len(partitions.train[number])
        assert (int(found["val"]), int(found["test"])) == (
            len(partitions.val[number]),
            len(partitions.test[number]),
        )
        labels = inputs_of(config).dataset.train.columns["y"][partitions.train[number]]
        assert int(found["classes"]) == len(np.unique(labels))
        assert [int(found[f"class {c}"]) for c in range(10)] == np.bincount(labels, minlength=10).tolist()


def test_of_many_clients_the_first_are_listed(configured):
    found = Inspection(inputs_of(configured(partition="iid", num_clients=100)))
    assert len(found.clients().rows) == MAX_LISTED
    assert found.facts()["training examples of a client"] == "14 to 15, median 14"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seed 0,1", "inspect: one run's data are looked at, not those of a sweep or a search"),
        ("--run-dir runs/first", "run-dir: inspect runs nothing; --to names the folder of its page"),
        ("--dataset shape:1x8x8:10", "dataset: 'shape:1x8x8:10' is not allowed; expected one with examples"),
        ("--partition circle", "partition: 'circle' is not allowed"),
        ("--num-client 3", "--num-client: unknown flag (did you mean --num-clients?)"),
        ("--to {full}", "to: '{full}' is not allowed; expected a new or empty folder"),
        ("--to", "inspect: argument --to: expected one argument"),
    ],
)
def test_a_mistake_is_one_line(words, message, tmp_path, cache_dir, monkeypatch, capsys):
    """Before the page is made."""
    if "--seed" in words:
        pytest.importorskip("fedbn_flower.sweeps")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedbn_flower.inspection.command.Inspection", lambda inputs: 1 / 0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    given = ["--cache-dir", str(cache_dir), *words.format(full=tmp_path / "full").split()]
    assert main(["inspect", *given]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"error: {message.format(full=tmp_path / 'full')}")
    assert output.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
