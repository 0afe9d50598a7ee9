"""Comparing two images by layer, package and file."""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from berth.images.inspect import diff
from berth.images.inspect.cyclonedx import Bill, BillPackage
from berth.images.inspect.diff import FileChange, InspectedImage, LayerChange, PackageChange
from berth.images.inspect.layers import SavedLayer
from berth.images.inspect.saved_image import FileEntry, SavedImage

FILE = FileEntry("file", 0o644, 0, 0, 3, 100, "a" * 64, layer=1)
LINK = FileEntry("link", 0o777, 0, 0, 0, 100, target="x", layer=1)
LAYERS = (SavedLayer("sha256:1", "base"), SavedLayer("sha256:2", "RUN deps"), SavedLayer("sha256:3", "RUN kit"))


def inspected(
    files: Mapping[str, FileEntry],
    packages: tuple[BillPackage, ...] = (),
    layers: tuple[SavedLayer, ...] = LAYERS,
    name: str = "one",
) -> InspectedImage:
    saved = SavedImage(name, "sha256:0", "2026-11-21T23:25:10Z", {}, layers, files, {})
    return InspectedImage(saved, Bill(name, "sha256:0", packages, {}))


def package(name: str, version: str, kind: str = "python") -> BillPackage:
    return BillPackage(name, version, kind, "MIT", "", "", "")


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, FILE, ("added", "", "sha256:aaaaaaaaaaaa, 3 bytes")),
        (LINK, None, ("removed", "link x", "")),
        (
            FILE,
            replace(FILE, sha256="b" * 64, mtime=5),
            ("content", "sha256:aaaaaaaaaaaa, 3 bytes", "sha256:bbbbbbbbbbbb, 3 bytes"),
        ),
        (LINK, replace(LINK, target="y"), ("content", "link x", "link y")),
        (FILE, LINK, ("content", "sha256:aaaaaaaaaaaa, 3 bytes", "link x")),
        (FILE, replace(FILE, mode=0o4755, mtime=5), ("mode", "0644 0:0", "4755 0:0")),
        (FILE, replace(FILE, uid=1000), ("mode", "0644 0:0", "0644 1000:0")),
        (
            FILE,
            replace(FILE, attributes="security.capability=01"),
            ("mode", "0644 0:0", "0644 0:0 security.capability=01"),
        ),
        (FILE, replace(FILE, mtime=5), ("time", "100", "5")),
    ],
)
def test_file_changes(before: FileEntry | None, after: FileEntry | None, change: tuple[str, str, str]) -> None:
    old, new = ({"p": file} if file else {} for file in (before, after))
    difference = diff.compare(inspected(old), inspected(new))
    assert difference.files == (FileChange("p", *change, "RUN deps"),)


def test_equal_file_in_another_layer_is_no_difference() -> None:
    difference = diff.compare(inspected({"p": FILE}), inspected({"p": replace(FILE, layer=2)}, name="two"))
    assert (difference.files, difference.verdict()) == ((), "one and two have the same contents.")


def test_layers_are_matched_by_step() -> None:
    after = (LAYERS[0], SavedLayer("sha256:9", "RUN efa"), replace(LAYERS[1], diff_id="sha256:8"), LAYERS[2])
    difference = diff.compare(
        inspected({"p": FILE}), inspected({"p": replace(FILE, sha256="b", layer=2)}, layers=after)
    )
    assert difference.layers == (
        LayerChange("RUN efa", "", "sha256:9", 0),
        LayerChange("RUN deps", "sha256:2", "sha256:8", 1),
    )


def test_package_changes() -> None:
    before = (package("rich", "14.0"), package("six", "1.17"), package("libc6", "2.36-9", "deb"), package("same", "1"))
    after = (package("rich", "15.0"), package("rich", "13.0"), package("libc6", "2.36-10", "deb"), package("same", "1"))
    difference = diff.package_changes(before, (*after, package("libc6", "1", "python")))
    assert difference == [
        PackageChange("deb", "libc6", "2.36-9", "2.36-10"),
        PackageChange("python", "libc6", "", "1"),
        PackageChange("python", "rich", "14.0", "13.0, 15.0"),
        PackageChange("python", "six", "1.17", ""),
    ]


def test_times_are_not_unexplained() -> None:
    difference = diff.compare(inspected({"p": FILE}), inspected({"p": replace(FILE, mtime=5)}))
    assert diff.unexplained(difference) == ((), ())


def test_packages_contents_and_modes_are_unexplained_differences() -> None:
    after = {"var/log/x": replace(FILE, sha256="b"), "p": replace(FILE, mode=0o600)}
    difference = diff.compare(inspected({"var/log/x": FILE, "p": FILE}), inspected(after, (package("rich", "15.0"),)))
    packages, files = diff.unexplained(difference)
    assert [change.name for change in packages] == ["rich"]
    assert [change.path for change in files] == ["p", "var/log/x"]


def rendered(difference: diff.Difference, *, everything: bool = False) -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(diff.render(difference, everything=everything))
    return console.export_text()


def test_render_hides_times_and_limits_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "SHOWN_FILES", 1)
    after = {"a": replace(FILE, sha256="b" * 64), "b": replace(FILE, mode=0o600), "t": replace(FILE, mtime=5)}
    text = rendered(
        diff.compare(inspected(dict.fromkeys("abt", FILE)), inspected(after, (package("x[/y]", "1"),), name="two"))
    )
    assert "/a " in text
    assert "x[/y]" in text, "names must not be parsed as rich's markup"
    assert "and 1 file more: --all shows them." in text
    assert "/t" not in text
    assert text.startswith(
        "one and two differ in 0 layers and 1 package; files: 1 with other content, 1 with another mode or owner, "
        "1 with another time only."
    )


def test_image_does_not_differ_from_itself() -> None:
    one = inspected({"p": FILE}, (package("rich", "15.0"),))
    difference = diff.compare(one, one)
    assert rendered(difference).strip() == "one and one have the same contents."
    assert json.loads(json.dumps(asdict(difference)))["files"] == []


def test_render_hides_bytecode_unless_everything() -> None:
    after = {name: replace(FILE, sha256="b" * 64) for name in ("a.py", "__pycache__/a.pyc", "__pycache__/b.pyc")}
    folder = FileEntry("folder", 0o755, 0, 0, 0, 100, layer=1)
    after |= {"__pycache__": folder, "usr/__pycache__": folder}
    before = {name: replace(folder, mode=0o700) if name.endswith("__pycache__") else FILE for name in after}
    difference = diff.compare(inspected(before), inspected(after, name="two"))
    text = rendered(difference)
    assert "/a.py" in text
    assert "/__pycache__" not in text
    assert "and 4 paths of bytecode (.pyc and __pycache__): --all shows them." in text
    assert "__pycache__/b.pyc" in rendered(difference, everything=True)
