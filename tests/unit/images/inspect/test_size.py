"""Sizes of layers from archives of `docker save`, and of packages from an environment with two packages."""

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from rich.console import Console

from berth.common.errors import UserError
from berth.images.inspect import layers, package_sizes, size
from berth.images.inspect.layers import Layer
from berth.images.pins import pins
from tests.unit.images.inspect.saved import archive, digest, zstd

PLAIN = b"0123456789abcdef" * 65536
ZIPPED = gzip.compress(PLAIN, compresslevel=9, mtime=0)
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="this machine has no program zstd")


COPIED = {"created_by": "COPY a /a # buildkit"}
NOTHING = {"created_by": "CMD true", "empty_layer": True}


def saved(folder: Path, form: str, *plain: bytes, **options: Any) -> Path:
    (folder / "image.tar").write_bytes(archive(plain, form, **options))
    return folder / "image.tar"


def test_older_archive_with_a_repeated_layer(tmp_path: Path) -> None:
    history = [COPIED, NOTHING, {"created_by": "RUN make # buildkit"}]
    steps: list[str] = []
    measured = layers.read_layers(saved(tmp_path, "older", PLAIN, PLAIN, history=history), {}, steps.append)
    compressed = measured[0].compressed
    assert measured == [
        Layer(digest(PLAIN), "COPY a /a", len(PLAIN), compressed),
        Layer(digest(PLAIN), "RUN make", len(PLAIN), compressed),
    ]
    # Nearly the same as gzip's own result.
    assert abs(compressed - len(gzip.compress(PLAIN, compresslevel=6, mtime=0))) <= 8
    assert sorted(steps) == ["layer 1 of 2 is measured", "layer 2 of 2 is measured"]


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(lambda: ZIPPED, id="gzip"),
        pytest.param(lambda: gzip.compress(PLAIN[:70000], 1) + gzip.compress(PLAIN[70000:], 9), id="gzip-two-members"),
        pytest.param(lambda: zstd(PLAIN), id="zstd", marks=needs_zstd),
        pytest.param(lambda: zstd(PLAIN[:70000]) + zstd(PLAIN[70000:]), id="zstd-two-frames", marks=needs_zstd),
    ],
)
def test_size_does_not_depend_on_the_stores_compression(stored: Callable[[], bytes], tmp_path: Path) -> None:
    """BuildKit's own gzip is about 4 % larger, which would exceed the budget on the containerd store."""
    found = [
        layers.read_layers(saved(tmp_path, "oci", PLAIN, pack=lambda _, data=data: data), {}, str)
        for data in (PLAIN, stored())
    ]
    assert found[0] == found[1]
    assert found[0][0].size == len(PLAIN)


def test_missing_zstd_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, "oci", PLAIN, pack=lambda _: layers.ZSTD + bytes(508))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"packed with zstd.*`apt-get install zstd`"):
        layers.read_layers(path, {}, str)


def test_known_layer_is_not_measured_again(tmp_path: Path) -> None:
    path = saved(tmp_path, "older", PLAIN, history=[COPIED])
    assert layers.read_layers(path, {digest(PLAIN): (7, 3)}, str) == [Layer(digest(PLAIN), "COPY a /a", 7, 3)]


@pytest.mark.parametrize(
    ("created_by", "label"),
    [
        pytest.param('/bin/sh -c #(nop)  CMD ["sh"]', 'CMD ["sh"]', id="old-builder-metadata"),
        pytest.param("/bin/sh -c apt-get   update", "apt-get update", id="old-builder-run"),
        pytest.param("RUN /bin/sh -c /layers/ssh.sh # buildkit", "RUN /layers/ssh.sh", id="buildkit-run"),
        pytest.param("RUN |2 A=1 B= /bin/sh -c make # buildkit", "RUN make", id="buildkit-run-with-arguments"),
        pytest.param("RUN |2 A=1 B= /bin/sh -c sh /tmp/layer/install.sh deps # buildkit", "deps", id="berths-layer"),
        pytest.param("Imported from -", "base", id="imported-base"),
        pytest.param("# debian.sh --arch 'amd64' out/ 'bookworm' '@1700000000'", "base", id="debian-image"),
        pytest.param("COPY " + "x" * 80, "COPY " + "x" * 54 + "…", id="long"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_short_label(created_by: str, label: str) -> None:
    assert layers.short_label(created_by) == label


def test_every_layer_of_the_dockerfile_has_a_short_label() -> None:
    """Labels come from the text of the steps, so they also work for images of other commits."""
    steps = re.findall(
        r"sh (/tmp/layer/install\.sh \w+)$", (pins.ROOT / "docker/Dockerfile").read_text(), flags=re.MULTILINE
    )
    names = {layers.short_label(f"RUN /bin/sh -c sh {step} # buildkit") for step in steps}
    assert {"openmpi", "deps", "train", "serve", "cudnn", *size.FILE_LAYERS} <= names


def test_layer_labels_are_empty_if_history_does_not_match() -> None:
    assert layers.layer_labels([COPIED, NOTHING], 2) == ["", ""]


def environment(root: Path) -> Path:
    files = {
        "big/data.bin": bytes(range(256)) * 4096,
        "small/__init__.py": b"x = 1\n",
        "big-1.0.dist-info/METADATA": b"Name: big\nVersion: 1.0\n",
        "small-2.0.dist-info/METADATA": b"Name: small\nVersion: 2.0\n",
    }
    records = {"big": "big/data.bin,,\nbig/pruned.bin,,\n", "small": "small/__init__.py,,\n"}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "big-1.0.dist-info/RECORD").write_text(records["big"] + "big-1.0.dist-info/METADATA,,\n")
    (root / "small-2.0.dist-info/RECORD").write_text(records["small"] + "small-2.0.dist-info/METADATA,,\n")
    return root


def test_package_sizes_as_a_program(tmp_path: Path) -> None:
    listing = subprocess.run(
        [sys.executable, "-S", "-c", Path(package_sizes.__file__).read_text()],
        # Not in the checkout, whose metadata would be found as well.
        cwd="/",
        env={"PYTHONPATH": str(environment(tmp_path))},
        capture_output=True,
        text=True,
        check=True,
    )
    big, small = json.loads(listing.stdout)
    assert (big[:3], small[:3]) == (["big", "1.0", 256 * 4096 + 23], ["small", "2.0", 6 + 25])
    assert 0 < small[3] < big[3] < 256 * 4096


class FakeEngine:
    """A fake engine with an image of berth's layers; `saved` counts how often it was saved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images = self
        self.layers, self.id = [PLAIN], "sha256:1"
        self.saved = 0
        monkeypatch.setattr(size, "run_once", self._run)

    def get(self, name: str) -> "FakeEngine":
        return self

    @property
    def attrs(self) -> dict[str, Any]:
        return {"RootFS": {"Layers": [digest(each) for each in self.layers]}}

    def history(self) -> list[dict[str, Any]]:
        return [
            {"CreatedBy": f"RUN sh /tmp/layer/install.sh {name}"}
            for name in reversed(["deps", "open", "train"][: len(self.layers)])
        ]

    def save(self, chunk_size: int) -> Iterator[bytes]:
        self.saved += 1
        steps = [{"created_by": f"RUN sh /tmp/layer/install.sh {name}"} for name in ("deps", "open")]
        yield archive(self.layers, "older", history=steps[: len(self.layers)])

    def _run(self, client: object, image: str, command: list[str]) -> bytes:
        return json.dumps([["big", "1.0", 100, 60], ["small", "2.0", 10, 70]]).encode()


def test_measured_layers_are_cached_across_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = FakeEngine(monkeypatch)
    cache = tmp_path / "cache"
    first = size.image_size(engine, "a", cache=cache)
    assert [(each.name, each.compressed) for each in first.packages] == [("small", 70), ("big", 60)]
    assert engine.saved == 1
    assert size.image_size(engine, "a", cache=cache) == first
    assert engine.saved == 1
    # Another image of the same layers is not saved.
    engine.id = "sha256:2"
    again = size.image_size(engine, "a", cache=cache)
    assert (again.layers, again.packages) == (first.layers, first.packages)
    assert engine.saved == 1
    # Of an image with one more layer, only that layer is measured.
    engine.id, engine.layers = "sha256:3", [PLAIN, b"another"]
    packed: list[str] = []
    monkeypatch.setattr(layers, "measure_layer", lambda archive, member: packed.append(member) or (7, 3))
    third = size.image_size(engine, "a", cache=cache)
    assert ([each.made_by for each in third.layers], packed) == (["deps", "open"], ["1/layer.tar"])
    assert third.layers[0] == first.layers[0]


def test_image_without_python_has_no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = FakeEngine(monkeypatch)

    def fail(explanation: str) -> None:
        def run(*_: object) -> bytes:
            raise APIError("400 Client Error", explanation=explanation)

        monkeypatch.setattr(size, "run_once", run)

    fail('exec: "python": executable file not found in $PATH')
    assert size.image_size(engine, "a", cache=tmp_path).packages == ()
    fail("no space left on device")
    engine.id = "sha256:2"
    with pytest.raises(APIError):
        size.image_size(engine, "b", cache=tmp_path)


def test_incomplete_archive_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = FakeEngine(monkeypatch)
    monkeypatch.setattr(engine, "save", lambda chunk_size: [b"cut"])
    with pytest.raises(UserError, match="sent only a part"):
        size.image_size(engine, "a", cache=tmp_path / "cache")


MEASURED = size.ImageSize(
    "berth-train:cpu",
    (Layer("sha256:1", "Imported from -", 60_000_000, 20_000_000), Layer("sha256:2", "RUN x", 4_000_000, 1_500_000)),
    (size.PackageSize("torch", "2.13.0", 3_000_000, 1_000_000),),
)


@pytest.mark.parametrize(
    ("budget", "within", "verdict"),
    [
        pytest.param(None, True, "berth-train:cpu: 21.5 MB compressed, 64.0 MB on disk", id="no-budget"),
        pytest.param(
            22,
            True,
            "berth-train:cpu: 21.5 MB compressed, 64.0 MB on disk; budget 22 MB compressed, 0.5 MB to spare",
            id="within",
        ),
        pytest.param(
            20,
            False,
            "berth-train:cpu: 21.5 MB compressed, 64.0 MB on disk; budget 20 MB compressed, exceeded by 1.5 MB",
            id="over",
        ),
    ],
)
def test_verdict_against_the_budget(budget: float | None, within: bool, verdict: str) -> None:
    measured = size.ImageSize(MEASURED.image, MEASURED.layers, MEASURED.packages, budget)
    assert (measured.within_budget, measured.verdict()) == (within, verdict)


@pytest.mark.parametrize(
    ("made_by", "within", "message"),
    [
        ("efa", True, "budget 22 MB compressed plus 9.0 MB of EFA, SMDDP or cuda-compat, 0.5 MB"),
        ("smdistributed", True, "0.5 MB to spare"),
        ("compat", True, "0.5 MB to spare"),
        ("deps", False, "budget 22 MB compressed, exceeded by 8.5 MB"),
    ],
)
def test_layers_of_files_do_not_count_for_the_budget(made_by: str, within: bool, message: str) -> None:
    files = Layer("sha256:3", made_by, 30_000_000, 9_000_000)
    measured = size.ImageSize(MEASURED.image, (*MEASURED.layers, files), (), 22)
    assert measured.within_budget is within
    assert message in measured.verdict()
    assert "30.5 MB compressed, 94.0 MB on disk" in measured.verdict()
    empty = size.ImageSize(MEASURED.image, (*MEASURED.layers, replace(files, compressed=100)), (), 22)
    assert "plus" not in empty.verdict()


def test_render_names_image_layers_and_packages() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(size.render_size(MEASURED))
    text = console.export_text()
    for expected in (
        "berth-train:cpu: layers, lowest first",
        "Imported from -",
        "60.0",
        "20.0",
        "torch",
        "64.0",
        "21.5",
    ):
        assert expected in text


def test_layers_above_berths_are_labelled_yours() -> None:
    kit = {"created_by": "RUN /bin/sh -c sh /tmp/layer/install.sh train # buildkit"}
    history = [COPIED, kit, {"created_by": "RUN /bin/sh -c pip install tabulate # buildkit"}]
    assert layers.layer_labels(history, 3)[1:] == ["train", "yours: RUN pip install tabulate"]
    assert layers.layer_labels(history[:2], 2)[1] == "train"


def test_layer_names_from_the_engines_history() -> None:
    """`docker history` is newest first and contains steps without a layer."""
    history = [
        {"CreatedBy": 'CMD ["train"]'},
        {"CreatedBy": "LABEL berth.kit=train"},
        {"CreatedBy": "RUN /bin/sh -c sh /tmp/layer/install.sh train # buildkit"},
        {"CreatedBy": "ARG SMDDP"},
        {"CreatedBy": "RUN |1 A=b /bin/sh -c sh /tmp/layer/install.sh openmpi # buildkit"},
        {"CreatedBy": "", "Comment": "Imported from -"},
    ]
    digests = ["sha256:1", "sha256:2", "sha256:3"]
    assert layers.layer_names(history, digests) == {"sha256:1": "base", "sha256:2": "openmpi", "sha256:3": "train"}
    assert layers.layer_names(history, digests[:2]) == {}
