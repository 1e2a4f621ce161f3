"""Pictures with a table of their labels as people have them."""

from pathlib import Path

from .case import FIFTH, OF_ROWS, Cases, grey, held_out, names, put, table

CASES = Cases()


def parquet(path: Path, as_struct: bool) -> None:
    """Write ten pictures of two classes, without the hub's description of the columns."""
    import io

    import pyarrow
    from pyarrow import parquet as files

    encoded = []
    for i in range(10):
        buffer = io.BytesIO()
        grey(i).save(buffer, "PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": None} if as_struct else buffer.getvalue())
    columns = {"image": encoded, "label": [i % 2 for i in range(10)]}
    files.write_table(pyarrow.table(columns), path)


@CASES.add(
    {
        "inputs": [names("file")],
        "left out": ["the table 'scanners.csv': 'labels.csv' labels the pictures"],
        "examples": [FIFTH],
    },
    pictures=OF_ROWS,
)
@CASES.add(
    "image-column: unknown name 'path'; expected one of file, label",
    name="stated image",
    keys={"image-column": "path"},
)
def a_second_table(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(10)])
    table(root, "scanners.csv", "scanner,year", ["A,2019", "B,2020"])


@CASES.add(
    {"inputs": [names("file")], "left out": ["1 row without a picture in 'file'"], "examples": [FIFTH]},
    pictures=OF_ROWS,
)
def an_empty_cell(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,label", [",1", *(f"{i}.png,{i % 2}" for i in range(10))])


@CASES.add(
    {
        "inputs": [
            (
                "the column 'file' of 'train.csv' and 'test.csv' names the pictures (guessed; image-"
                "column decides)"
            )
        ]
    },
    pictures=OF_ROWS,
)
def a_table_by_split(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "train.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(6)])
    table(root, "test.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(6, 10)])


@CASES.add(
    {
        "inputs": [names("id_code", "train.csv")],
        "left out": [
            "the tables 'sample_submission.csv', 'test.csv': 'train.csv' labels the pictures",
            "6 pictures without a label in 'train.csv'",
        ],
        "examples": [FIFTH],
    },
    keys={"label-column": "diagnosis"},
)
def a_competition(root: Path) -> None:
    put(root, "train", "test", count=6)
    table(root, "train.csv", "id_code,diagnosis", [f"train/{i}.png,{i % 2}" for i in range(6)])
    table(root, "test.csv", "id_code", [f"test/{i}.png" for i in range(6)])
    table(root, "sample_submission.csv", "id_code,diagnosis", [f"test/{i}.png,0" for i in range(6)])


@CASES.add(
    (
        "label-column: 'grade' is in 'patients.csv', no column of which names pictures: 'patient' holds "
        "'p0', and there is no such picture; image-column says which one does"
    ),
    keys={"label-column": "grade"},
)
def a_stated_label_and_no_names(root: Path) -> None:
    put(root, "a", "b")
    table(root, "patients.csv", "patient,grade", [f"p{i},{i % 2}" for i in range(10)])


A_ROW_EACH = "expected a row for each picture, with a column of their paths, such as 'p0/0.png'"


@CASES.add(
    f"label-column: 'grade' is in 'patients.csv', whose column 'patient' names folders; {A_ROW_EACH}",
    keys={"label-column": "grade"},
)
@CASES.add(
    f"image-column: 'patient' holds 'p0', and that is a folder; {A_ROW_EACH} (5 of 5 rows)",
    name="folders as pictures",
    keys={"label-column": "grade", "image-column": "patient"},
)
def a_row_for_each_folder(root: Path) -> None:
    put(root, *(f"p{i}" for i in range(5)), count=3)
    table(root, "patients.csv", "patient,grade", [f"p{i},{i % 2}" for i in range(5)])


@CASES.add("image-column: 'file' holds '8.png', and there is no such picture (2 of 10 rows)")
def a_missing_picture(root: Path) -> None:
    put(root, "images", count=8)
    table(root, "labels.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(10)])


@CASES.add(
    {
        "inputs": [names("file")],
        "examples": [
            FIFTH,
            "5 rows name a picture that an earlier row names, too; labels? 5 pictures have rows with "
            "different labels",
        ],
        "left out": ["5 pictures without a label in 'labels.csv'"],
    }
)
def one_picture_in_two_rows(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,label", [f"{i // 2}.png,{i % 2}" for i in range(10)])


@CASES.add(
    {"inputs": [names("file")], "examples": [FIFTH, "5 rows name a picture that an earlier row names, too"]}
)
def one_picture_in_two_equal_rows(root: Path) -> None:
    put(root, "images", count=5)
    table(root, "labels.csv", "file,label", [f"{i % 5}.png,{i % 5 % 2}" for i in range(10)])


@CASES.add({"inputs": [names("url")], "examples": [FIFTH]}, pictures=OF_ROWS)
def addresses(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "url,label", [f"https://example.org/images/{i}.png,{i % 2}" for i in range(10)])


@CASES.add({"examples": [held_out(2, 10)]}, classes=("a", "b"))
def metadata_of_the_hub(root: Path) -> None:
    put(root, "train", count=10)
    table(root, "train/metadata.csv", "file_name,label", [f"{i}.png,{'ab'[i % 2]}" for i in range(10)])


ALIKE = (
    "label-column: 'label' holds 'melanoma', 'melanoma ', which differ only in case or blanks; expected "
    "classes with names: 'label=melanoma|naevus'"
)
NAMED = {"label-column": "label=melanoma|naevus"}
READ_ALIKE = "read without regard to case and blanks: 'melanoma ' as 'melanoma'"


def two_spellings(root: Path, name: str, column: str) -> None:
    """Of a class, in a table that says what is to be tested on."""
    put(root, "images", count=10)
    words = ("melanoma", "naevus", "melanoma ", "naevus", "naevus")
    rows = [f"images/{i}.png,{words[i % 5]},{'test' if i > 7 else 'train'}" for i in range(10)]
    table(root, name, f"{column},label,split", rows)


@CASES.add(ALIKE)
@CASES.add(
    {
        "target": [READ_ALIKE],
        "examples": [
            held_out(2, 10),
            "the column 'split' of 'test' and 'train' divides nothing: for that give folders 'train' and "
            "'test', each with its pictures and its own metadata",
        ],
    },
    name="spellings in metadata, named",
    keys=NAMED,
    classes=("melanoma", "naevus"),
)
def spellings_in_metadata(root: Path) -> None:
    two_spellings(root, "metadata.csv", "file_name")


@CASES.add(ALIKE)
@CASES.add(
    {
        "target": [READ_ALIKE],
        "inputs": [names("file")],
        "examples": [
            FIFTH,
            "the column 'split' of 'test' and 'train' divides nothing: for that give the rows as tables "
            "'train.csv' and 'test.csv'",
        ],
    },
    name="spellings in a table, named",
    keys=NAMED,
    classes=("melanoma", "naevus"),
)
def spellings_in_a_table(root: Path) -> None:
    two_spellings(root, "labels.csv", "file")


@CASES.add({"inputs": [names("image_id", "metadata.csv")], "examples": [FIFTH]}, pictures=OF_ROWS)
def metadata_of_somebody(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "metadata.csv", "image_id,label", [f"{i},{i % 2}" for i in range(10)])


@CASES.add(
    {
        "target": [
            "classes? 'patients.csv' beside the class folders has a row for each of 10 pictures and is not "
            "read; if a column of it names them, label-column=COLUMN reads its labels"
        ],
        "left out": ["1 file (1 .csv): not pictures in a class folder"],
        "examples": [held_out(2, 10)],
    },
    classes=("melanoma", "naevus"),
)
def a_table_beside_classes(root: Path) -> None:
    put(root, "melanoma", "naevus")
    table(root, "patients.csv", "patient,age", [f"p{i},{50 + i}" for i in range(10)])


@CASES.add({"examples": [held_out(2, 10)]}, file="pictures.parquet")
def pictures_in_parquet(root: Path) -> None:
    parquet(root / "pictures.parquet", as_struct=True)


@CASES.add({"examples": [held_out(2, 10)]}, file="pictures.parquet")
@CASES.add({"examples": [held_out(2, 10)]}, name="bytes in parquet folder")
def bytes_in_parquet(root: Path) -> None:
    parquet(root / "pictures.parquet", as_struct=False)


@CASES.add(
    "label-column: 'HAM10000_metadata.csv' names the pictures and has no column label, "
    "labels, target, class, outcome, y; expected one of lesion_id, image_id, dx, age, "
    "sex; or move it away, if the folders are the classes"
)
@CASES.add(
    {"inputs": [names("image_id", "HAM10000_metadata.csv")], "examples": [FIFTH]},
    name="ham dx",
    keys={"label-column": "dx"},
    classes=("mel", "nv"),
)
def parts_of_an_archive(root: Path) -> None:
    put(root, "images_part_1", count=5, name="ISIC_{}.jpg")
    put(root, "images_part_2", count=5, name="ISIC_1{}.jpg")
    ids = [f"ISIC_{i}" for i in (*range(5), *range(10, 15))]
    table(
        root,
        "HAM10000_metadata.csv",
        "lesion_id,image_id,dx,age,sex",
        [f"HAM_{n},{i},{'nv' if n % 2 else 'mel'},{50 + n},f" for n, i in enumerate(ids)],
    )


AGES = tuple(str(30 + i) for i in range(12))


@CASES.add(
    {
        "target": [
            "'age' holds 12 distinct whole numbers, read as classes (guessed; problem regression decides)",
            f"the classes {', '.join(AGES)} are numbered from 0",
        ],
        "inputs": [names("id")],
        "examples": [FIFTH],
    },
    name="ages as classes",
    keys={"label-column": "age"},
    classes=AGES,
)
@CASES.add(
    {"inputs": [names("id")], "examples": [FIFTH]},
    keys={"label-column": "age", "problem": "regression", "partition": "auto"},
)
def ages_as_numbers(root: Path) -> None:
    put(root, "images", count=12)
    table(root, "labels.csv", "id,age", [f"{i}.png,{30 + i}" for i in range(12)])
