"""From every row of predictions.parquet back to the file, which is read here by other means."""

import csv
import gzip
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytest.importorskip("fedbn_flower.files")

from fedbn_flower.data.dataset import Request
from fedbn_flower.files.tables.table_file import open_table
from tests.quick import some_quick

RNG = np.random.default_rng(0)
COUNT = 40
WORDS = RNG.permutation(np.repeat(["benign", "cancer"], COUNT // 2))
PATIENTS = np.array([f"00{i // 2}" for i in range(COUNT)])
AGES = RNG.permutation(COUNT) + 20
IMAGES = RNG.integers(0, 256, (COUNT, 6, 6), np.uint8)
NUMBERS = (WORDS == "cancer").astype(np.int64)
FEATURES = RNG.normal(size=(COUNT, 3)).astype(np.float32)
HEADER = ["patient", "age", "note", "outcome"]
ROWS = [[p, str(a), ["a", "b"][a % 2], w] for p, a, w in zip(PATIENTS, AGES, WORDS, strict=True)]
OF_TABLE = {"label_column": "outcome", "model": "linear", "client": "fedavg"}


def written(rows=ROWS, header=HEADER, **keys):
    text = io.StringIO()
    csv.writer(text, **keys).writerows([header, *rows])
    return text.getvalue()


def from_csv(text, **keys):
    """Return what a spreadsheet's row says: the target and the patient."""
    rows = list(csv.reader(io.StringIO(text, newline=""), **keys))

    def read(row):
        found = dict(zip(HEADER, rows[row - 1], strict=True))
        return found["outcome"], found["patient"]

    return read


def plain(folder):
    text = written()
    (folder / "patients.csv").write_text(text)
    read = from_csv(text)
    return {"dataset": "patients.csv", **OF_TABLE}, lambda source: read(row_of("patients.csv", source))


def row_of(name, source):
    found = re.fullmatch(rf"{re.escape(name)}:(\d+)", source)
    assert found, source
    return int(found[1])


def untidy(folder):
    """Comments, blank lines, rows without a label, and a line break within a cell; packed."""
    rows = [list(row) for row in ROWS]
    for row in rows[::3]:
        row[2] = 'in "two"\nlines; a'
    rows[5][3] = rows[11][3] = ""
    lines = written(rows, delimiter=";").splitlines(keepends=True)
    lines.insert(9, "\r\n")
    text = "# exported\n# from somewhere\n" + "".join(lines)
    (folder / "patients.csv.gz").write_bytes(gzip.compress(text.encode()))
    read = from_csv(text, delimiter=";")
    return {"dataset": "patients.csv.gz", **OF_TABLE}, lambda source: read(row_of("patients.csv.gz", source))


def tables(folder, files, **keys):
    """Tables in a folder, by name their rows and delimiter."""
    (folder / "data").mkdir()
    reads = {}
    for name, (rows, delimiter) in files.items():
        text = written(rows, delimiter=delimiter)
        (folder / "data" / name).write_text(text, encoding="utf-8")
        reads[name] = from_csv(text, delimiter=delimiter)

    def read(source):
        name, _, row = source.rpartition(":")
        return reads[name](int(row))

    return {"dataset": "data", **keys, **OF_TABLE}, read


def sites(folder):
    files = {"lyon.csv": (ROWS[:18], ","), "süd.tsv": (ROWS[18:], "\t")}
    return tables(folder, files, partition="natural:file")


def splits(folder):
    return tables(folder, {"train.csv": (ROWS[:25], ","), "test.csv": (ROWS[25:], ",")})


def excel(folder):
    openpyxl = pytest.importorskip("openpyxl")
    pd.DataFrame(ROWS, columns=HEADER).astype({"age": int}).to_excel(folder / "patients.xlsx", index=False)
    sheet = openpyxl.load_workbook(folder / "patients.xlsx").active

    def read(source):
        row = row_of("patients.xlsx", source)
        return sheet.cell(row, 4).value, sheet.cell(row, 1).value

    return {"dataset": "patients.xlsx", **OF_TABLE}, read


def parquet(folder):
    pd.DataFrame(ROWS, columns=HEADER).astype({"age": int}).to_parquet(folder / "patients.parquet")
    table = pd.read_parquet(folder / "patients.parquet")

    def read(source):
        row = table.iloc[item_of("patients.parquet", source)]
        return row["outcome"], row["patient"]

    return {"dataset": "patients.parquet", **OF_TABLE}, read


def item_of(name, source):
    found = re.fullmatch(rf"{re.escape(name)}\[(\d+)\]", source)
    assert found, source
    return int(found[1])


def saved(folder, above=lambda i: WORDS[i]):
    """Write the pictures, each in the folder that ``above`` says; return the class and patient of each."""
    known = {}
    for i, image in enumerate(IMAGES):
        path = Path(above(i), f"{PATIENTS[i]}_{i}.png")
        (folder / "data" / path.parent).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / "data" / path)
        known[path.as_posix()] = WORDS[i], PATIENTS[i], image
    return known


def picture_of(folder, known):
    def read(source):
        target, patient, image = known[source]
        assert np.array_equal(np.asarray(Image.open(folder / "data" / source)), image)
        return target, patient

    return read


BY_NAME = {"group_column": r"name=(\d+)_"}
SITES = ["north", "south"]


def class_folders(folder):
    return {"dataset": "data", **BY_NAME}, picture_of(folder, saved(folder))


def site_folders(folder):
    known = saved(folder, lambda i: f"{SITES[int(PATIENTS[i]) % 2]}/{WORDS[i]}")
    return {"dataset": "data", "partition": "natural:folder", **BY_NAME}, picture_of(folder, known)


def labelled_images(folder):
    known = saved(folder, lambda i: "scans")
    rows = [[Path(name).name, word, patient] for name, (word, patient, _) in known.items()]
    text = written(rows[::-1], ["file", "outcome", "patient"])
    (folder / "data" / "labels.csv").write_text(text)
    keys = {"dataset": "data", "label_column": "outcome", "group_column": "patient"}
    return keys, picture_of(folder, known)


def shifted(folder):
    keys, read = class_folders(folder)
    return {**keys, "feature_shift": "inverted"}, read


def with_metadata(folder):
    known = saved(folder, lambda i: "train")
    lines = [[Path(name).name, word, patient] for name, (word, patient, _) in known.items()]
    (folder / "data/train/metadata.csv").write_text(written(lines, ["file_name", "label", "patient"]))
    known = {name: (word, str(int(patient)), image) for name, (word, patient, image) in known.items()}
    return {"dataset": "data", "group_column": "patient"}, picture_of(folder, known)  # `datasets` reads them


def of_hub(folder):
    from datasets import Dataset, Features, Value
    from datasets import Image as Picture

    columns = {"image": [Image.fromarray(i) for i in IMAGES], "label": WORDS, "patient": PATIENTS}
    features = Features(image=Picture(), label=Value("string"), patient=Value("string"))
    Dataset.from_dict(columns, features).save_to_disk(folder / "data")

    def read(source):
        row = Dataset.load_from_disk(folder / "data")[item_of("train", source)]
        return row["label"], row["patient"]

    return {"dataset": "data", "group_column": "patient"}, read


def scans(folder):
    nibabel = pytest.importorskip("nibabel")
    for i, word in enumerate(WORDS):
        (folder / "data" / word).mkdir(parents=True, exist_ok=True)
        image = nibabel.Nifti1Image(np.full((4, 4, 3), i, np.int16), np.eye(4))
        nibabel.save(image, folder / "data" / word / f"{PATIENTS[i]}_{i}.nii.gz")

    def read(source):
        i = int(nibabel.load(folder / "data" / source).get_fdata()[0, 0, 0])
        return WORDS[i], PATIENTS[i]

    return {"dataset": "data", "model": "linear", **BY_NAME}, read


def arrays(folder):
    data = FEATURES[:25], NUMBERS[:25], FEATURES[25:], NUMBERS[25:]
    keys = {"data": data, "groups": (PATIENTS[:25], PATIENTS[25:])}
    return keys, lambda source: (
        NUMBERS[25:][item_of("x_test", source)],
        PATIENTS[25:][item_of("x_test", source)],
    )


def by_client(folder):
    parts = {"nord": slice(0, 22), "süd": slice(22, 40)}
    data = {name: (FEATURES[rows], NUMBERS[rows]) for name, rows in parts.items()}
    keys = {"data": data, "groups": {name: PATIENTS[rows] for name, rows in parts.items()}}

    def read(source):
        name = re.match(r"data\[(\w+)\]", source)[1]
        item = item_of(f"data[{name}]", source)
        return NUMBERS[parts[name]][item], PATIENTS[parts[name]][item]

    return keys, read


def own_function(folder):
    np.savez(folder / "arrays.npz", x=FEATURES, y=NUMBERS)
    code = "import numpy as np\n\ndef read(split):\n    found = np.load('arrays.npz')\n"
    code += "    rows = slice(0, 25) if split == 'train' else slice(25, 40)\n"
    (folder / "own.py").write_text(f"{code}    return found['x'][rows], found['y'][rows]\n")
    return {"dataset": "own.py:read"}, lambda source: (NUMBERS[25:][item_of("test", source)], None)


def numpy_files(folder):
    (folder / "data").mkdir()
    np.save(folder / "data/train-images.npy", IMAGES)
    np.save(folder / "data/train-labels.npy", NUMBERS)
    (folder / "data/classes.txt").write_text("benign\ncancer\n")
    return {"dataset": "data"}, lambda source: (WORDS[item_of("train-images.npy", source)], None)


def digits(folder):
    from sklearn.datasets import load_digits

    return {"dataset": "scanners"}, lambda source: (load_digits().target[item_of("digits", source)], None)


READERS = (
    *(plain, untidy, sites, splits, excel, parquet, class_folders, site_folders, labelled_images, shifted),
    *(with_metadata, of_hub, scans, arrays, by_client, own_function, numpy_files, digits),
)
KINDS = {made.__name__.replace("_", " "): made for made in READERS}
WAYS = {
    "tested": {},
    "validated": {"val_fraction": 0.3, "final_test": False},
    "folds": {"folds": 3, "fold": 2},
    "left out": {"leave_one_site_out": True, "left_out": 0, "val_fraction": 0.2},
}
CASES = [(kind, "tested") for kind in KINDS]
CASES += [("untidy", "folds"), ("site folders", "folds"), ("by client", "folds"), ("plain", "validated")]
CASES += [(kind, "left out") for kind in ("splits", "sites", "site folders", "by client")]


@pytest.mark.parametrize(("kind", "way"), some_quick(CASES, [*range(4), len(CASES) - 4]))
def test_each_row_leads_back_to_its_file(run, tmp_path, kind, way):
    keys, read = KINDS[kind](tmp_path)
    of_table = {"group_column": "patient"} if "label_column" in keys else {}
    of_clients = {} if kind == "by client" else {"num_clients": 2, "partition": "iid"}
    usual = {**of_clients, **of_table, "eval_data": "local", "rounds": 1}
    table = run(**usual | keys | WAYS[way]).predictions
    assert len(table) > 3
    assert table.source.nunique() == len(table)
    assert set(table.split) == (
        {"train", "test"} if way == "left out" else {"val" if way == "validated" else "test"}
    )
    assert (table.split[~table.new] == "test").all() or way == "validated"
    if kind == "splits":
        assert (table.source.str.partition(".")[0] == table.split).all()
    for row in table.to_dict("records"):
        target, patient = read(row["source"])
        assert row["target"] == target
        assert (None if pd.isna(row["group"]) else row["group"]) == patient
        scores = [value for name, value in row.items() if name.startswith("score-")]
        names = ["benign", "cancer"] if isinstance(row["predicted"], str) else range(10)
        assert row["predicted"] == names[int(np.argmax(scores)) if scores else row["score"] > 0.5]


@pytest.mark.slow
def test_a_mask_leads_back_to_its_picture(run, tmp_path):
    for i, image in enumerate(IMAGES[:10]):
        for kind, pixels in {"images": image, "masks": (image > 25 * i).astype(np.uint8)}.items():
            path = tmp_path / f"data/{SITES[i % 2]}/{kind}/{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    keys = {"model": "unet", "client": "fedavg", "partition": "natural:folder", "num_clients": 2, "rounds": 1}
    table = run(dataset="data", eval_data="local", **keys).predictions
    assert len(table) == table.source.nunique() == 2
    for source, pixels in zip(table.source, table["reference-pixels"], strict=True):
        mask = np.asarray(Image.open(tmp_path / "data" / source.replace("images", "masks")))
        assert pixels == mask.sum()


def test_rows_are_numbered_as_a_spreadsheet_numbers_them(tmp_path):
    text = 'a,b\r\n1,"two\r\nlines"\r\n\r\n2,x\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    read = open_table(tmp_path / "t.csv", Request("t.csv"))
    assert read.origins("t.csv").tolist() == [b"t.csv:2", b"t.csv:4"]
