"""What is below a data folder, as the readers and the cache's fingerprint see it."""

from fedbn_flower.files.walk import stamps, walk


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_links_to_folders_are_entered_and_loops_end(tmp_path):
    write(tmp_path / "pool", "a/1.png", "a/b/2.png")
    root = tmp_path / "data"
    write(root, "own/3.png")
    (root / "linked").symlink_to(tmp_path / "pool" / "a")
    (root / "again").symlink_to(tmp_path / "pool" / "a")
    (root / "own" / "up").symlink_to(root)
    (root / "own" / "file.png").symlink_to(tmp_path / "pool" / "a" / "1.png")
    (root / "own" / "gone.png").symlink_to(tmp_path / "nothing.png")
    found = walk(root)
    names = [path.relative_to(root).as_posix() for path in found.files]
    assert names == [
        "again/1.png", "again/b/2.png", "linked/1.png", "linked/b/2.png",
        "own/3.png", "own/file.png", "own/gone.png",
    ]  # fmt: skip
    assert [path.relative_to(root).as_posix() for path in found.folders] == [
        "again", "again/b", "linked", "linked/b", "own",
    ]  # fmt: skip
    assert [note.text for note in found.notes()] == ["links to a folder that they are in: 'own/up'"]
    assert [name for name, *_ in stamps(found.files, root)] == names


def test_a_linked_root_and_loops_of_two_end(tmp_path):
    write(tmp_path / "one", "1.png")
    write(tmp_path / "two", "2.png")
    (tmp_path / "one" / "two").symlink_to(tmp_path / "two")
    (tmp_path / "two" / "one").symlink_to(tmp_path / "one")
    (tmp_path / "root").symlink_to(tmp_path / "one")
    found = walk(tmp_path / "root")
    assert [path.name for path in found.files] == ["1.png", "2.png"]
    assert [path.relative_to(found.root).as_posix() for path in found.loops] == ["two/one"]


def test_what_systems_leave_behind_is_left_out(tmp_path):
    write(
        tmp_path,
        "a/1.png",
        ".git/x",
        "a/.DS_Store",
        "a/Thumbs.db",
        "__MACOSX/a/1.png",
        "@eaDir/1.png",
        "a/desktop.ini",
    )
    assert [path.name for path in walk(tmp_path).files] == ["1.png"]
