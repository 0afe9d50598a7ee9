"""What a requirements.txt replaced in the image, as the log says it and as it stands behind a failure."""

from pathlib import Path

import pytest

from berth.images.pins import pins_file
from berth.runtime.hints import images
from berth.runtime.hints.images import ThisImage, image_with
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.replaced_packages import hint, package_note
from berth.runtime.installed_packages import Package, Packages

HERE = ThisImage("cpu")
OF_IMAGE = {
    "transformers": Package("5.23.0", ("huggingface-hub<3.0,>=1.31.0", "tokenizers<0.25,>=0.22")),
    "accelerate": Package("1.15.0", ("torch>=2.0.0",)),
    "datasets": Package("5.2.0", ("huggingface-hub>=1.31.0",)),
    "huggingface-hub": Package("1.31.0"),
    "tokenizers": Package("0.23.1"),
    "torch": Package("2.13.0+cpu"),
    "safetensors": Package("0.8.0", ("numpy<1; extra == 'old'",)),
    "numpy": Package("2.4.0"),
}


def after(**versions: str | Package) -> Packages:
    """The image's packages with others in the place of some."""
    changed = {
        name: Package(new, OF_IMAGE[name].requires) if isinstance(new, str) else new
        for name, new in ((each.replace("_", "-"), new) for each, new in versions.items())
    }
    return OF_IMAGE | changed


@pytest.mark.parametrize(
    ("text", "packages", "note"),
    [
        (
            "transformers==4.27.1\naccelerate==0.17.1\n",
            after(transformers=Package("4.27.1"), accelerate="0.17.1"),
            "requirements.txt replaces transformers 5.23.0 with 4.27.1 and accelerate 1.15.0 with 0.17.1; profile "
            "cpu-hf4 has transformers 4.26",
        ),
        (
            "huggingface-hub==0.36.0\n",
            after(huggingface_hub="0.36.0"),
            "requirements.txt replaces huggingface-hub 1.31.0 with 0.36.0; huggingface-hub 0.36.0 (requirements.txt, "
            "line 1) conflicts with transformers 5.23.0 (needs >=1.31.0,<3.0) and datasets 5.2.0 (needs "
            ">=1.31.0); remove the pin",
        ),
        (
            "# ours\ntransformers==4.46.3  # as in our other images\n",
            after(transformers=Package("4.46.3"), huggingface_hub="0.36.0", tokenizers="0.20.3"),
            "requirements.txt replaces transformers 5.23.0 with 4.46.3 (and with it huggingface-hub, tokenizers); "
            "huggingface-hub 0.36.0 conflicts with datasets 5.2.0 (needs >=1.31.0); `python build.py profile add mine "
            "--from cpu --transformers 4.46.3` makes an image for it",
        ),
        (
            "torch==2.8.0",
            after(torch="2.8.0"),
            "requirements.txt replaces torch 2.13.0+cpu with 2.8.0; `python build.py profile add mine --from cpu "
            "--torch 2.8.0` makes an image with it",
        ),
        (
            "rows==1.0",
            OF_IMAGE | {"rows": Package("1.0", ("numpy<2",))},
            "numpy 2.4.0 conflicts with rows 1.0 (needs <2); choose another version of rows",
        ),
        ("numpy==2.3.0", after(numpy="2.3.0"), "requirements.txt replaces numpy 2.4.0 with 2.3.0"),
    ],
)
def test_what_was_replaced_is_said_with_what_helps(text: str, packages: Packages, note: str) -> None:
    found = package_note(OF_IMAGE, packages, "requirements.txt", text, HERE)
    assert found is not None
    assert found.text == note


def test_nothing_is_said_of_new_packages() -> None:
    assert package_note(OF_IMAGE, OF_IMAGE | {"rows": Package("1.0")}, "requirements.txt", "rows", HERE) is None


SITE = "/opt/berth/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (
            RaisedException(
                "ImportError", "cannot import name 'ResolvedRevision' from 'huggingface_hub' (x)", ["/c/t.py"]
            ),
            True,
        ),
        (
            RaisedException(
                "RuntimeError", "Failed to import transformers.trainer because of: No module named 'x'", ["/c/t.py"]
            ),
            True,
        ),
        (RaisedException("KeyError", "'x'", ["/c/t.py", f"{SITE}/transformers/utils/hub.py"]), True),
        (RaisedException("KeyError", "'transformers'", ["/c/t.py", f"{SITE}/pandas/frame.py"]), False),
        (RaisedException("ImportError", "cannot import name 'x' from 'rows'", ["/c/t.py"]), False),
        (RaisedException("ImportError", "cannot import name 'x' from 'my_transformers'", ["/c/t.py"]), False),
    ],
)
def test_only_a_failure_that_comes_from_it_has_it(raised: RaisedException, shown: bool) -> None:
    packages = after(huggingface_hub="0.36.0")
    note = package_note(OF_IMAGE, packages, "requirements.txt", "huggingface-hub==0.36.0", HERE)
    said = hint(raised, ProgramContext(Path("/c"), package_note=note))
    assert ("conflicts with transformers" in said) == shown


def test_the_profiles_are_those_of_the_pins() -> None:
    found = pins_file.load().profiles
    known = {
        name: (row.hardware, row.packages["transformers"]) for name, row in found.items() if name in images.PROFILES
    }
    assert known == {name: (row.hardware, row.transformers) for name, row in images.PROFILES.items()}


@pytest.mark.parametrize(
    ("version", "here", "way"),
    [
        ("4.26.1", ThisImage("cpu"), "profile cpu-hf4 has transformers 4.26"),
        ("4.31.0", ThisImage("cu130", "13.0"), "profile cpu-hf4 has transformers 4.26"),
        ("4.31.0", ThisImage("cu124", "12.4"), "profile cu124-hf4 has transformers 4.26"),
        ("4.57.6", ThisImage("cpu-hf4"), "--from cpu --transformers 4.57.6`"),
        ("4.57.6", ThisImage("mine", "13.0"), "--from cu130 --transformers 4.57.6`"),
        ("4.40.2", ThisImage("cpu"), "--from cpu --transformers 4.40.2 --day 2024-12-01`"),
        ("5.23.0", ThisImage("cpu-hf4"), "profile cpu has transformers 5.23"),
        ("no version", ThisImage("cpu"), ""),
    ],
)
def test_the_image_that_has_a_version(version: str, here: ThisImage, way: str) -> None:
    found = image_with(version, here)
    assert way in found
    assert bool(found) == bool(way)
