"""Folders of classes and sites as people have them."""

from pathlib import Path

from .case import Cases, grey, held_out, put, text

CASES = Cases()
EACH = "; partition natural:folder makes a client of each"
AS_SITES = f"{EACH} (guessed; the order of the two levels decides)"


SITES = "the folders 'lyon', 'turin' are read as sites, 'melanoma', 'naevus' in them as classes"
OF_A_CLASS = "in them as parts of a class (guessed; partition natural:folder decides)"


@CASES.add(
    {
        "clients": [SITES + AS_SITES],
        "left out": ["2 files (1 .pdf, 1 .txt): not pictures in a class folder"],
        "examples": [held_out(4, 20, "site and class")],
    },
    classes=("melanoma", "naevus"),
)
def sites_beside_documents(root: Path) -> None:
    put(root, "lyon/naevus", "lyon/melanoma", "turin/naevus", "turin/melanoma")
    text(root, "docs/protocol.pdf")
    text(root, "docs/readme.txt")


@CASES.add({"clients": [SITES + EACH]}, classes=("melanoma", "naevus"))
def sites_with_splits_inside(root: Path) -> None:
    put(
        root,
        "lyon/train/naevus",
        "lyon/train/melanoma",
        "lyon/test/naevus",
        "turin/train/naevus",
        "turin/test/melanoma",
    )


@CASES.add({"left out": ["the split 'validation': 'testing' is the test set"]}, classes=("glioma", "none"))
def splits_in_capitals_with_a_third(root: Path) -> None:
    put(root, "Training/glioma", "Training/none", "Testing/glioma", "Testing/none", "Validation/glioma")


@CASES.add(
    {
        "clients": [f"the folders 'lyon', 'turin' are read as classes, 'melanoma', 'naevus' {OF_A_CLASS}"],
        "examples": [held_out(2, 10)],
    },
    classes=("lyon", "turin"),
)
@CASES.add(
    {"clients": [SITES], "examples": [held_out(2, 10, "site and class")]},
    name="natural sites of disjoint classes",
    keys={"partition": "natural:folder", "num-clients": 2},
    classes=("melanoma", "naevus"),
    sites=("lyon", "turin"),
)
def sites_of_disjoint_classes(root: Path) -> None:
    put(root, "lyon/naevus", "turin/melanoma")


@CASES.add(
    {
        "clients": [
            "the folders 'benign', 'malignant' are read as classes, 'patient_1', 'patient_2', 'patient_3' "
            f"{OF_A_CLASS}"
        ],
        "examples": [
            "leaks? 20 pictures seem to be of 3 people ('patient_1/0.png', 'patient_1/1.png'); group-column "
            "'name=([^/]+)/[^/]+$' keeps those of one on one side of every split",
            held_out(4, 20),
        ],
    },
    classes=("benign", "malignant"),
)
def patients_below_classes(root: Path) -> None:
    put(root, "benign/patient_1", "benign/patient_2", "malignant/patient_1", "malignant/patient_3")


@CASES.add(
    {
        "target": ["classes differ only in case or blanks: 'Naevus' and 'naevus '"],
        "examples": [held_out(3, 15)],
    },
    classes=("Naevus", "melanoma", "naevus "),
)
def classes_in_two_cases(root: Path) -> None:
    put(root, "Naevus", "naevus ", "melanoma")


@CASES.add(
    {
        "target": ["'naevus' is the only class: there is nothing to tell it from"],
        "examples": [held_out(1, 5)],
    },
    classes=("naevus",),
)
def one_class(root: Path) -> None:
    put(root, "naevus")


@CASES.add({"examples": [held_out(2, 10)]}, classes=("melanoma", "naevus"))
def linked_classes(root: Path) -> None:
    put(root.parent / "pool", "a", "b")
    (root / "naevus").symlink_to(root.parent / "pool" / "a")
    (root / "melanoma").symlink_to(root.parent / "pool" / "b")


@CASES.add("dataset: FOLDER/naevus/9.png is a link to a file that does not exist")
def a_link_to_nothing(root: Path) -> None:
    put(root, "melanoma", "naevus")
    (root / "naevus" / "9.png").symlink_to("../../annex/9.png")


@CASES.add(
    "dataset: 'FOLDER' holds 5 files (5 .png), which nothing labels; expected a folder "
    "for each class, a table with names and labels, or folders 'images' and 'masks'"
)
@CASES.add(
    "dataset: 'FOLDER/0.png' is not allowed; expected the folder of the pictures, not one of them",
    name="a picture",
    file="0.png",
)
def flat_pictures(root: Path) -> None:
    put(root, ".")


@CASES.add(
    {
        "left out": ["5 files (5 .png) in 'test': no class folders in it, so nothing labels them"],
        "examples": [held_out(2, 10)],
    },
    classes=("cat", "dog"),
)
def flat_test_pictures(root: Path) -> None:
    put(root, "train/cat", "train/dog", "test")


@CASES.add(
    {
        "clients": [
            (
                "the folders 'dataset' are read as classes, 'cat', 'dog' in them as parts of a class "
                "(guessed; partition natural:folder decides)"
            )
        ],
        "target": [
            (
                "'dataset' is the only class: there is nothing to tell it from; if the folders in it "
                "are classes, the dataset is FOLDER/dataset"
            )
        ],
        "examples": [held_out(2, 10)],
    },
    classes=("dataset",),
)
def a_wrapped_folder(root: Path) -> None:
    put(root, "dataset/cat", "dataset/dog")


@CASES.add(
    {"left out": ["1 file (1 .csv): not pictures in a class folder"], "examples": [held_out(2, 10)]},
    classes=("melanoma", "naevus"),
)
def metadata_of_no_pictures(root: Path) -> None:
    put(root, "melanoma", "naevus")
    text(root, "metadata.csv", "patient,age\np1,50\n")


def few_people(first: str, *names: str) -> dict[str, list[str]]:
    count = 1 + len(names)
    return {
        "target": [
            f"classes? {count} folders of at most 5 pictures, such as {first!r}, {names[0]!r}, are read as "
            "classes; if each is a person or a case, name the pictures and their labels in a table instead, "
            f"with a row for each picture, such as '{first}/0.png'"
        ],
        "examples": [f"no test split: {count} of {5 * count} images (20 % per class) are held out"],
    }


@CASES.add(few_people("017", "018", "230"), classes=("017", "018", "230"))
def people_by_number(root: Path) -> None:
    put(root, "017", "018", "230")


@CASES.add({"examples": [held_out(4, 20)]}, classes=("0", "1", "2", "grade_3"))
def grades(root: Path) -> None:
    put(root, "0", "1", "2", "grade_3")


@CASES.add(
    {
        "inputs": [
            "masks? 6 of 15 pictures are called as masks of another, such as 'benign (0)_mask.png' of "
            "'benign (0).png', and learnt from as the others; move them out, or into a folder 'masks' beside "
            "one 'images' to learn them"
        ],
        "examples": [held_out(3, 15)],
    },
    classes=("benign", "normal"),
)
def masks_beside_their_pictures(root: Path) -> None:
    """As the archive BUSI has them; a ninth picture is of a mask, but of no other picture."""
    put(root, "benign", name="benign ({}).png")
    put(root, "benign", name="benign ({})_mask.png", first=1)
    grey(9).save(root / "benign" / "benign (0)_mask_1.png")
    put(root, "normal", count=3)
    grey(8).save(root / "normal" / "face_mask.png")


@CASES.add({"examples": [held_out(12, 60)]}, classes=tuple(f"n{i:08}" for i in range(12)))
def classes_by_number(root: Path) -> None:
    """As those of ImageNet."""
    put(root, *(f"n{i:08}" for i in range(12)))
