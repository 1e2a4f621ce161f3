"""Pictures, masks and folders as people have them: how each is made, and what a run says of it."""

import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

BENIGN, MALIGNANT = "benign", "malignant"


@dataclass(frozen=True)
class Case:
    """Files, the keys of a run, and what it says of them.

    Parameters
    ----------
    name : str
        What is the matter with them.
    write : Callable[[Path], None]
        Writes the files into an empty folder.
    says : dict[str, list[str]] or str
        The lines of each row that has some; or the line by which the files are refused. ``FOLDER`` stands for
        the folder's path.
    keys : dict
        Of the run, but for the dataset.
    file : str
        The dataset in the folder, if it is not the folder itself.
    classes : tuple[str, ...]
        The classes' names, where there are some.
    shape : tuple[int, ...]
        Of an example.
    sites : tuple[str, ...]
        The natural clients, where the keys ask for them.
    """

    name: str
    write: Callable[[Path], None]
    says: dict[str, list[str]] | str = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    classes: tuple[str, ...] = ()
    shape: tuple[int, ...] = (1, 4, 4)
    sites: tuple[str, ...] = ()


# ---- what the files are made of ---------------------------------------------------------------------


def grey(value: int, mode: str = "L") -> Image.Image:
    """A picture of 4x4 pixels of one shade."""
    return Image.new("L", (4, 4), value).convert(mode)


def put(
    root: Path, *folders: str, count: int = 5, mode: str = "L", name: str = "{}.png", first: int = 0
) -> None:
    """Write pictures into folders, of the shades 10 f + i."""
    for f, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            grey(10 * (f + first) + i, mode).save(root / folder / name.format(i))


def deep(root: Path, folder: str, values: list[int], name: str = "{}.png") -> None:
    """Write grey pictures of 16 bits, each of one value."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i, value in enumerate(values):
        Image.fromarray(np.full((4, 4), value, np.uint16)).save(root / folder / name.format(i))


def text(root: Path, name: str, content: str = "notes") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content, encoding="utf-8")


def table(root: Path, name: str, header: str, rows: list[str]) -> None:
    text(root, name, "\n".join([header, *rows]) + "\n")


def masks(root: Path, values: tuple[int, int], count: int = 5, mode: str = "L", ending: str = ".png") -> None:
    """Write images and their masks, whose left half has the first value and whose right half the second."""
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        grey(20 * i).save(root / "images" / f"{i}.png")
        mask = np.repeat(np.array([values], np.uint8), 2, axis=1).repeat(4, axis=0)
        Image.fromarray(mask).convert(mode).save(root / "masks" / f"{i}{ending}")


def colour_of_16_bits(path: Path, pixels: np.ndarray) -> None:
    """Write a PNG of 16 bits in colour, uint16 (height, width, 3), which Pillow cannot."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return len(content).to_bytes(4, "big") + whole + zlib.crc32(whole).to_bytes(4, "big")

    height, width, _ = pixels.shape
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    parts = (
        (b"IHDR", size + bytes([16, 2, 0, 0, 0])),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))


# ---- folders of classes and sites -------------------------------------------------------------------


def sites_none_with_every_class(root: Path) -> None:
    put(
        root,
        "lyon/naevus",
        "lyon/melanoma",
        "turin/melanoma",
        "turin/keratosis",
        "oslo/keratosis",
        "oslo/naevus",
    )


def sites_beside_documents(root: Path) -> None:
    put(root, "lyon/naevus", "lyon/melanoma", "turin/naevus", "turin/melanoma")
    text(root, "docs/protocol.pdf")
    text(root, "docs/readme.txt")


def sites_in_an_archive_of_macos(root: Path) -> None:
    put(root, "lyon/naevus", "lyon/melanoma", "turin/naevus")
    for path in (
        "__MACOSX/lyon/._naevus",
        "__MACOSX/._lyon",
        ".DS_Store",
        "lyon/.DS_Store",
        "lyon/naevus/Thumbs.db",
    ):
        text(root, path)
    text(root, "lyon/naevus/._0.png")


def sites_with_splits_inside(root: Path) -> None:
    put(
        root,
        "lyon/train/naevus",
        "lyon/train/melanoma",
        "lyon/test/naevus",
        "turin/train/naevus",
        "turin/test/melanoma",
    )


def splits_in_capitals_with_a_third(root: Path) -> None:
    put(root, "Training/glioma", "Training/none", "Testing/glioma", "Testing/none", "Validation/glioma")


def sites_of_disjoint_classes(root: Path) -> None:
    put(root, "lyon/naevus", "turin/melanoma")


def patients_below_classes(root: Path) -> None:
    put(root, "benign/patient_1", "benign/patient_2", "malignant/patient_1", "malignant/patient_3")


def patients_with_numbers_alone(root: Path) -> None:
    put(root, "benign/0017", "benign/0023", "malignant/0031", "malignant/0017")


def slides_below_patients(root: Path) -> None:
    put(root, *(f"{patient}/{label}" for patient in (8863, 8864, 8865, 8867) for label in (0, 1)))


def stray_pictures_in_sites(root: Path) -> None:
    put(root, "lyon/naevus", "lyon/melanoma", "turin/naevus", "turin/melanoma")
    grey(0).save(root / "lyon" / "overview.png")
    grey(0).save(root / "logo.png")


def classes_in_two_cases(root: Path) -> None:
    put(root, "Naevus", "naevus ", "melanoma")


def names_in_other_scripts(root: Path) -> None:
    put(root, "Névus", "黑色素瘤")


def one_class(root: Path) -> None:
    put(root, "naevus")


def one_picture_a_class(root: Path) -> None:
    put(root, *"abcdef", count=1)


def an_empty_class(root: Path) -> None:
    put(root, "melanoma", "naevus")
    (root / "keratosis").mkdir()


def linked_classes(root: Path) -> None:
    put(root.parent / "pool", "a", "b")
    (root / "naevus").symlink_to(root.parent / "pool" / "a")
    (root / "melanoma").symlink_to(root.parent / "pool" / "b")


def links_that_lead_back(root: Path) -> None:
    put(root, "melanoma", "naevus")
    (root / "naevus" / "all").symlink_to(root)
    (root / "melanoma" / "self").symlink_to(root / "melanoma")


def a_link_to_nothing(root: Path) -> None:
    put(root, "melanoma", "naevus")
    (root / "naevus" / "9.png").symlink_to("../../annex/9.png")


def flat_pictures(root: Path) -> None:
    put(root, ".")


def flat_test_pictures(root: Path) -> None:
    put(root, "train/cat", "train/dog", "test")


# ---- single pictures --------------------------------------------------------------------------------


def capital_suffixes(root: Path) -> None:
    put(root, "melanoma", name="{}.PNG")
    put(root, "naevus", name="{}.Jpg", first=1)


def many_modes(root: Path) -> None:
    put(root, "a", count=2)
    for i, mode in enumerate(("RGB", "RGBA", "CMYK", "P", "LA", "1", "YCbCr")):
        path = root / "b" / f"{i}.{'tif' if mode in ('CMYK', 'YCbCr') else 'png'}"
        path.parent.mkdir(exist_ok=True)
        grey(200, "RGB").convert(mode).save(path)


def turned_by_exif(root: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for folder in ("a", "b"):
        (root / folder).mkdir()
        for i in range(4):
            Image.new("L", (4, 6), 9).save(root / folder / f"{i}.jpg")
        Image.new("L", (6, 4), 9).save(root / folder / "4.jpg", exif=exif)


def a_truncated_jpeg(root: Path) -> None:
    put(root, "a", "b", name="{}.jpg")
    whole = (root / "b" / "3.jpg").read_bytes()
    (root / "b" / "3.jpg").write_bytes(whole[: len(whole) // 2])


def an_empty_file(root: Path) -> None:
    put(root, "a", "b")
    (root / "b" / "3.png").write_bytes(b"")


def a_page_of_html(root: Path) -> None:
    put(root, "a", "b")
    text(root, "b/3.png", "<html>404 Not Found</html>")


def another_suffix(root: Path) -> None:
    put(root, "a", "b")
    grey(3).save(root / "b" / "3.png", format="JPEG")


def mixed_sizes(root: Path) -> None:
    put(root, "a", "b")
    Image.new("L", (8, 6)).save(root / "b" / "3.png")


def twelve_bits(root: Path) -> None:
    deep(root, "a", [1200, 1201, 1210, 1220, 1230])
    deep(root, "b", [1400, 1401, 1410, 1420, 4095])


def eight_and_sixteen_bits(root: Path) -> None:
    put(root, "a")
    deep(root, "b", [0, 255, 256, 1000, 65535])


def sixteen_bits_in_colour(root: Path) -> None:
    for f, folder in enumerate("ab"):
        for i in range(5):
            pixels = np.full((4, 4, 3), 256 * f, np.uint16) + np.array([i, 2 * i, 65535 - i], np.uint16)
            colour_of_16_bits(root / folder / f"{i}.png", pixels)


def fractions(root: Path) -> None:
    put(root, "a", "b")
    Image.new("F", (4, 4), 0.5).save(root / "b" / "3.tif")


def stacks(root: Path) -> None:
    for f, folder in enumerate("ab"):
        (root / folder).mkdir()
        for i in range(5):
            pages = [grey(10 * f + i), grey(100), grey(200)]
            pages[0].save(root / folder / f"{i}.tif", save_all=True, append_images=pages[1:])


def one_stack(root: Path) -> None:
    put(root, "a", "b", name="{}.tif")
    grey(1).save(root / "b" / "3.tif", save_all=True, append_images=[grey(2)])


def animations(root: Path) -> None:
    for folder, shade in (("a", 40), ("b", 90)):
        (root / folder).mkdir()
        for i in range(5):
            frames = [grey(shade + i, "RGB"), grey(200 + i, "RGB")]
            frames[0].save(
                root / folder / f"{i}.webp", save_all=True, append_images=frames[1:], lossless=True
            )


def pictures_of_a_phone(root: Path) -> None:
    put(root, "a", name="{}.jpg")
    (root / "b").mkdir()
    for i in range(5):
        grey(i).save(root / "b" / f"{i}.jpg", format="MPO", save_all=True, append_images=[grey(9)])


# ---- tables of pictures -----------------------------------------------------------------------------


def ids_without_suffix(root: Path) -> None:
    put(root, "images", count=10, name="ISIC_{}.jpg")
    table(
        root,
        "labels.csv",
        "isic,diagnosis",
        [f"ISIC_{i},{'nevus' if i % 2 else 'melanoma'}" for i in range(10)],
    )


def numbers_without_zeros(root: Path) -> None:
    put(root, "images", count=10, name="000{}.png")
    table(root, "labels.csv", "id,label", [f"{i},{i % 2}" for i in range(10)])


def zeros_that_numbers_keep(root: Path) -> None:
    put(root, "images", count=10, name="000{}.png")
    table(root, "labels.csv", "id,label", [f"000{i},{i % 2}" for i in range(10)])


def a_second_table(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(10)])
    table(root, "scanners.csv", "scanner,year", ["A,2019", "B,2020"])


def an_empty_cell(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,label", [",1", *(f"{i}.png,{i % 2}" for i in range(10))])


def backslashes(root: Path) -> None:
    put(root, "images/a", "images/b")
    rows = [f"{folder}\\{i}.png" for folder in "ab" for i in range(5)]
    table(
        root, "labels.csv", "path,label", [f"D:\\study\\images\\{row},{i % 2}" for i, row in enumerate(rows)]
    )


def a_table_by_split(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "train.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(6)])
    table(root, "test.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(6, 10)])


def a_competition(root: Path) -> None:
    put(root, "train", "test", count=6)
    table(root, "train.csv", "id_code,diagnosis", [f"train/{i}.png,{i % 2}" for i in range(6)])
    table(root, "test.csv", "id_code", [f"test/{i}.png" for i in range(6)])
    table(root, "sample_submission.csv", "id_code,diagnosis", [f"test/{i}.png,0" for i in range(6)])


def a_stated_label_and_no_names(root: Path) -> None:
    put(root, "a", "b")
    table(root, "patients.csv", "patient,grade", [f"p{i},{i % 2}" for i in range(10)])


def a_wrong_label_column(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,grade", [f"{i}.png,{i % 2}" for i in range(10)])


def a_missing_picture(root: Path) -> None:
    put(root, "images", count=8)
    table(root, "labels.csv", "file,label", [f"{i}.png,{i % 2}" for i in range(10)])


def one_picture_in_two_rows(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "file,label", [f"{i // 2}.png,{i % 2}" for i in range(10)])


def addresses(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", "url,label", [f"https://example.org/images/{i}.png,{i % 2}" for i in range(10)])


def an_index_of_pandas(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "labels.csv", ",file,label", [f"{i},{9 - i}.png,{(9 - i) % 2}" for i in range(10)])


def metadata_of_the_hub(root: Path) -> None:
    put(root, "train", count=10)
    table(root, "train/metadata.csv", "file_name,label", [f"{i}.png,{'ab'[i % 2]}" for i in range(10)])


def metadata_of_somebody(root: Path) -> None:
    put(root, "images", count=10)
    table(root, "metadata.csv", "image_id,label", [f"{i},{i % 2}" for i in range(10)])


def a_table_beside_classes(root: Path) -> None:
    put(root, "melanoma", "naevus")
    table(root, "patients.csv", "patient,age", [f"p{i},{50 + i}" for i in range(10)])


def pictures_in_parquet(root: Path) -> None:
    parquet(root / "pictures.parquet", as_struct=True)


def bytes_in_parquet(root: Path) -> None:
    parquet(root / "pictures.parquet", as_struct=False)


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


# ---- masks ------------------------------------------------------------------------------------------


def sites_that_write_masks_differently(root: Path) -> None:
    masks(root / "lyon", (0, 255))
    masks(root / "turin", (0, 1))


def masks_as_jpeg(root: Path) -> None:
    masks(root, (0, 255), ending=".jpg")


def masks_by_palette(root: Path) -> None:
    masks(root, (0, 0))
    for i in range(5):
        image = Image.fromarray(np.full((4, 4), i % 3, np.uint8))
        image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        image.save(root / "masks" / f"{i}.png")


def masks_in_colour(root: Path) -> None:
    masks(root, (0, 1))
    Image.new("RGB", (4, 4), (128, 0, 0)).save(root / "masks" / "3.png")


def masks_in_grey_rgb(root: Path) -> None:
    masks(root, (0, 255), mode="RGB")


def a_missing_mask(root: Path) -> None:
    masks(root, (0, 1))
    (root / "masks" / "3.png").unlink()


def a_mask_too_many(root: Path) -> None:
    masks(root, (0, 1))
    grey(0).save(root / "masks" / "9.png")


def a_site_without_masks(root: Path) -> None:
    masks(root / "lyon", (0, 1))
    put(root, "turin/images")


def sites_below_images_and_masks(root: Path) -> None:
    for site in ("lyon", "turin"):
        masks(root / "of" / site, (0, 1))
        for kind in ("images", "masks"):
            (root / kind).mkdir(exist_ok=True)
            shutil.move(root / "of" / site / kind, root / kind / site)
    shutil.rmtree(root / "of")


def splits_below_images_and_masks(root: Path) -> None:
    for split in ("train", "val"):
        masks(root / "of" / split, (0, 1))
        for kind in ("images", "masks"):
            (root / kind).mkdir(exist_ok=True)
            shutil.move(root / "of" / split / kind, root / kind / split)
    shutil.rmtree(root / "of")


def volumes(root: Path) -> None:
    for kind, pages in {"images": [10, 20, 30], "masks": [0, 1, 1]}.items():
        (root / kind).mkdir()
        for i in range(5):
            first, *others = (grey(page) for page in pages)
            first.save(root / kind / f"{i}.tif", save_all=True, append_images=others)


def masks_of_another_depth(root: Path) -> None:
    volumes(root)
    grey(1).save(root / "masks" / "3.tif", save_all=True, append_images=[grey(0)])


# ---- what is not read -------------------------------------------------------------------------------


def unread(*names: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for name in names:
            text(root, name)

    return write


def an_archive(root: Path) -> None:
    with zipfile.ZipFile(root / "pictures.zip", "w") as archive:
        archive.writestr("a/1.png", b"")


def scans_beside_pictures(root: Path) -> None:
    put(root, "benign")
    for i in range(5):
        text(root, f"malignant/{i}.dcm")


CASES = [
    Case(f.__name__.replace("_", " "), f)
    for f in (
        sites_none_with_every_class,
        sites_beside_documents,
        sites_in_an_archive_of_macos,
        sites_with_splits_inside,
        splits_in_capitals_with_a_third,
        sites_of_disjoint_classes,
        patients_below_classes,
        patients_with_numbers_alone,
        slides_below_patients,
        stray_pictures_in_sites,
        classes_in_two_cases,
        names_in_other_scripts,
        one_class,
        one_picture_a_class,
        an_empty_class,
        linked_classes,
        links_that_lead_back,
        a_link_to_nothing,
        flat_pictures,
        flat_test_pictures,
        capital_suffixes,
        many_modes,
        turned_by_exif,
        a_truncated_jpeg,
        an_empty_file,
        a_page_of_html,
        another_suffix,
        mixed_sizes,
        twelve_bits,
        eight_and_sixteen_bits,
        sixteen_bits_in_colour,
        fractions,
        stacks,
        one_stack,
        animations,
        pictures_of_a_phone,
        numbers_without_zeros,
        zeros_that_numbers_keep,
        a_second_table,
        an_empty_cell,
        backslashes,
        a_table_by_split,
        a_missing_picture,
        one_picture_in_two_rows,
        addresses,
        an_index_of_pandas,
        metadata_of_the_hub,
        metadata_of_somebody,
        a_table_beside_classes,
        sites_that_write_masks_differently,
        masks_as_jpeg,
        masks_by_palette,
        masks_in_colour,
        masks_in_grey_rgb,
        a_missing_mask,
        a_mask_too_many,
        a_site_without_masks,
        sites_below_images_and_masks,
        splits_below_images_and_masks,
        volumes,
        masks_of_another_depth,
        an_archive,
        scans_beside_pictures,
    )
] + [
    Case(
        "natural sites of disjoint classes",
        sites_of_disjoint_classes,
        keys={"partition": "natural:folder", "num-clients": 2},
    ),
    Case("ids without suffix", ids_without_suffix, keys={"label-column": "diagnosis"}),
    Case("a competition", a_competition, keys={"label-column": "diagnosis"}),
    Case("a stated label and no names", a_stated_label_and_no_names, keys={"label-column": "grade"}),
    Case("a wrong label", a_wrong_label_column, keys={"label-column": "stage"}),
    Case("a wrong label auto", a_wrong_label_column),
    Case("stated image", a_second_table, keys={"image-column": "path"}),
    Case("pictures in parquet", pictures_in_parquet, file="pictures.parquet"),
    Case("bytes in parquet", bytes_in_parquet, file="pictures.parquet"),
    Case("bytes in parquet folder", bytes_in_parquet),
    Case("dcm", unread("p1/1.dcm", "p1/2.dcm", "p2/1.dcm")),
    Case("nii", unread("images/1.nii.gz", "labels/1.nii.gz")),
    Case("nii file", unread("scan.nii.gz"), file="scan.nii.gz"),
    Case("zip file", an_archive, file="pictures.zip"),
    Case("h5 file", unread("data.h5"), file="data.h5"),
    Case("mat", unread("train.mat", "test.mat")),
    Case("heic", unread("a/1.heic", "b/1.heic")),
    Case("a picture", flat_pictures, file="0.png"),
    Case("huge size", one_class, keys={"image-size": 100000}),
]


def a_table_without_labels_beside_classes(root: Path) -> None:
    put(root, "melanoma", "naevus")
    table(
        root,
        "scans.csv",
        "file,scanner",
        [f"{folder}/{i}.png,A" for folder in ("melanoma", "naevus") for i in range(5)],
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


def a_mosaic(root: Path) -> None:
    put(root, "a", "b")
    Image.new("1", (13000, 13000)).save(root / "b" / "4.png")


def a_wrapped_folder(root):
    put(root, "dataset/cat", "dataset/dog")


CASES += [
    Case(f.__name__.replace("_", " "), f)
    for f in (a_table_without_labels_beside_classes, parts_of_an_archive, a_mosaic, a_wrapped_folder)
] + [
    Case("ham dx", parts_of_an_archive, keys={"label-column": "dx"}),
    Case("mosaic size", a_mosaic, keys={"image-size": 8}),
]
