"""The note on packages of the image that a requirements.txt replaced: in the log, and after a failure."""

from pathlib import Path

import pytest

from berth.images.pins import pins_file
from berth.runtime.hints import images
from berth.runtime.hints.images import ThisImage, image_with
from berth.runtime.hints.program import PackageNote, ProgramContext, RaisedException
from berth.runtime.hints.replaced_packages import hint, package_note

IMAGE = ThisImage("cpu")
CONFLICT = (
    "transformers 5.23.0 requires huggingface-hub<3.0,>=1.31.0, but you have huggingface-hub 0.36.0 which is "
    "incompatible."
)
DATASETS_CONFLICT = CONFLICT.replace("transformers 5.23.0", "datasets 5.2.0").replace("<3.0,", "[torch]")


def pip_output(replaced: dict[str, str], installed: str, *conflicts: str) -> list[str]:
    """pip's lines. `replaced`: package → the version that the image had. `installed`: as in pip's last line."""
    lines = ["Installing collected packages: " + ", ".join(replaced)]
    for name, version in replaced.items():
        lines += [f"  Attempting uninstall: {name}", f"    Found existing installation: {name} {version}"]
    return [*lines, f"Successfully installed {installed}", *conflicts]


@pytest.mark.parametrize(
    ("text", "output", "note"),
    [
        pytest.param(
            "transformers==4.27.1\naccelerate==0.17.1\n",
            pip_output(
                {"accelerate": "1.15.0", "transformers": "5.23.0"}, "accelerate-0.17.1 rows-1.0 transformers-4.27.1"
            ),
            "requirements.txt replaces transformers 5.23.0 with 4.27.1 and accelerate 1.15.0 with 0.17.1; profile "
            "cpu-hf4 has transformers 4.26",
            id="existing-profile",
        ),
        pytest.param(
            "huggingface-hub==0.36.0\n",
            pip_output({"huggingface_hub": "1.31.0"}, "huggingface_hub-0.36.0", DATASETS_CONFLICT, CONFLICT),
            "requirements.txt replaces huggingface-hub 1.31.0 with 0.36.0; huggingface-hub 0.36.0 (requirements.txt, "
            "line 1) conflicts with transformers 5.23.0 (needs <3.0,>=1.31.0) and datasets 5.2.0 (needs "
            ">=1.31.0); remove the pin",
            id="conflict-of-pinned-package",
        ),
        pytest.param(
            "# ours\ntransformers==4.46.3  # as in our other images\n",
            pip_output(
                {"tokenizers": "0.23.1", "huggingface-hub": "1.31.0", "transformers": "5.23.0"},
                "huggingface-hub-0.36.0 tokenizers-0.20.3 transformers-4.46.3",
                DATASETS_CONFLICT,
            ),
            "requirements.txt replaces transformers 5.23.0 with 4.46.3 (and with it huggingface-hub, tokenizers); "
            "huggingface-hub 0.36.0 conflicts with datasets 5.2.0 (needs >=1.31.0); `python build.py profile add mine "
            "--from cpu --transformers 4.46.3` makes an image for it",
            id="new-profile-for-transformers",
        ),
        pytest.param(
            "torch==2.8.0",
            pip_output({"torch": "2.13.0+cpu"}, "torch-2.8.0"),
            "requirements.txt replaces torch 2.13.0+cpu with 2.8.0; `python build.py profile add mine --from cpu "
            "--torch 2.8.0` makes an image with it",
            id="new-profile-for-torch",
        ),
        pytest.param(
            "numpy==2.3.0",
            pip_output({"numpy": "2.4.0"}, "numpy-2.3.0"),
            "requirements.txt replaces numpy 2.4.0 with 2.3.0",
            id="without-conflict",
        ),
    ],
)
def test_note_names_replaced_packages_conflicts_and_remedy(text: str, output: list[str], note: str) -> None:
    found = package_note(output, "requirements.txt", text, IMAGE)
    assert found is not None
    assert found.text == note


def test_new_and_reinstalled_packages_have_no_note() -> None:
    output = pip_output({"numpy": "2.4.0"}, "numpy-2.4.0 rows-1.0")
    assert package_note(output, "requirements.txt", "rows", IMAGE) is None


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
def test_note_is_added_only_to_failures_of_its_packages(raised: RaisedException, shown: bool) -> None:
    note = PackageNote("a note", ("huggingface_hub", "transformers"))
    assert hint(raised, ProgramContext(Path("/c"), package_note=note)) == ("; a note" if shown else "")


def test_profiles_equal_those_in_pins_toml() -> None:
    found = pins_file.load().profiles
    known = {
        name: (row.hardware, row.packages["transformers"]) for name, row in found.items() if name in images.PROFILES
    }
    assert known == {name: (row.hardware, row.transformers) for name, row in images.PROFILES.items()}


@pytest.mark.parametrize(
    ("version", "this_image", "advice"),
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
def test_image_with_names_profile_or_command(version: str, this_image: ThisImage, advice: str) -> None:
    found = image_with(version, this_image)
    assert advice in found
    assert bool(found) == bool(advice)
