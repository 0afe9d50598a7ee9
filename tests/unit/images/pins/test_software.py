"""Software sets and profiles in docker/pins.toml: inheritance and errors."""

import re
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.pins import pins, pins_file

PINS = pins_file.load()

OWN = """
[software.own]
images = ["train"]
transformers = "4.46.3"
accelerate = "1.1.1"
datasets = "3.1.0"
pillow = "11.0.0"
nncf = "none"
packages = ["peft==0.13.2"]
constraints = ["numpy<2"]
debian = ["git"]
day = "2024-12-01"

[software.own.environment]
TOKENIZERS_PARALLELISM = "false"

[profiles.own]
from = "cpu"
software = "own"
"""


def with_text(tmp_path: Path, text: str) -> pins.Pins:
    path = tmp_path / "pins.toml"
    path.write_text(pins.PATH.read_text() + text)
    return pins_file.load(path)


def test_software_set_is_read_with_all_keys(tmp_path: Path) -> None:
    assert with_text(tmp_path, OWN).software["own"] == pins.SoftwareSet(
        name="own",
        images=("train",),
        packages={
            "transformers": "4.46.3",
            "accelerate": "1.1.1",
            "datasets": "3.1.0",
            "pillow": "11.0.0",
            "nncf": "none",
        },
        requirements=("peft==0.13.2",),
        constraints=("numpy<2",),
        debian=("git",),
        day="2024-12-01",
        environment={"TOKENIZERS_PARALLELISM": "false"},
    )


def test_profile_packages_are_shared_ones_with_those_of_its_set(tmp_path: Path) -> None:
    profile, cpu = with_text(tmp_path, OWN).profile("own"), PINS.profile("cpu")
    differ = {
        name: profile.packages.get(name)
        for name in {*profile.packages, *cpu.packages}
        if profile.packages.get(name) != cpu.packages.get(name)
    }
    assert differ == {
        "transformers": "4.46.3",
        "accelerate": "1.1.1",
        "datasets": "3.1.0",
        "pillow": "11.0.0",
        "nncf": None,
    }


def test_profile_inherits_missing_keys_from_origin(tmp_path: Path) -> None:
    both = OWN.replace('images = ["train"]\ntransformers = "4.46.3"', 'transformers = "5.0.0"')
    profile, cpu = (
        with_text(tmp_path, f"{both}[profiles.own.budget]\ntrain = 500\n").profile("own"),
        PINS.profile("cpu"),
    )
    assert (profile.torch, profile.torch_index, profile.hardware) == (cpu.torch, cpu.torch_index, "cpu")
    assert profile.budget == {"train": 500, "serve": cpu.budget["serve"]}
    assert profile.instances == cpu.instances
    cu124 = PINS.profile("cu124")
    own = with_text(tmp_path, OWN.replace('"cpu"', '"cu124"\nsmddp = "none"')).profile("own")
    assert own.files == {part: file for part, file in cu124.files.items() if part != "smddp"}
    assert (own.cuda, own.hardware, own.software.name) == (cu124.cuda, "cu124", "own")


@pytest.mark.parametrize("line", ['torch = "2.6.0+cpu"', 'torch_index = "https://torch.example"'])
def test_profile_with_another_torch_has_its_own_hardware(line: str, tmp_path: Path) -> None:
    all_pins = with_text(
        tmp_path, f'{OWN.replace("[profiles.own]", "[profiles.own]" + chr(10) + line)}[profiles.next]\nfrom = "own"\n'
    )
    assert (all_pins.profile("own").hardware, all_pins.profile("next").hardware) == ("own", "own")
    assert all_pins.profile("next").software.name == "own"


def test_hf4_profiles_share_torch_and_have_only_a_training_image() -> None:
    profiles = {name: profile for name, profile in PINS.profiles.items() if profile.software.name == "hf4"}
    assert {name: (profile.hardware, profile.images) for name, profile in profiles.items()} == {
        "cpu-hf4": ("cpu", ("train",)),
        "cu124-hf4": ("cu124", ("train",)),
    }
    for profile in profiles.values():
        assert (profile.openvino("train"), "nncf" in profile.packages) == (pins.NONE, False)
        assert set(profile.budget) == {"train"}
        assert not profile.runs_berth


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('pillow = "', 'pilow = "', "pilow of [software.own] is unknown (did you mean pillow?)"),
        ('pillow = "', 'peft = "', "peft of [software.own] is unknown (a package of your own goes into `packages`"),
        ('pillow = "', 'torch = "', "torch of [software.own] is unknown (torch and torchvision belong to a profile"),
        ('pillow = "11.0.0"', "pillow = 11", "pillow of [software.own] is not a text in quotes in pins.toml"),
        ('pillow = "11.0.0"', 'pip = "none"', 'pip of [software.own] is "none", which only openvino, nncf, evaluate,'),
        ('datasets = "3.1.0"\n', "", "datasets of [software.own] is missing in pins.toml"),
        ('"peft==0.13.2"', '"peft=0.13.2"', "'peft=0.13.2' of [software.own] is not a requirement: write it as for"),
        ('"peft==0.13.2"', '"x @ https://host/x.whl"', "of [software.own] is a URL, and locks take files from package"),
        ('"peft==0.13.2"', '"Scikit_Learn==1"', "packages of [software.own] has scikit-learn, which has its own key"),
        ('["git"]', '["git; true"]', "'git; true' of [software.own] is not a Debian package name: write a name"),
        ('"numpy<2"', '"<2"', "'<2' of [software.own] is not a requirement"),
        ('"2024-12-01"', '"December"', "day of [software.own] is 'December', which is not a date: write it as 2024"),
        ('"2024-12-01"', "2024-12-01", "day of [software.own] is not a text in quotes"),
        ("TOKENIZERS_P", '"A B"=""\nP', "'A B' of the environment of [software.own] is not a variable name"),
        ('images = ["train"]', 'images = ["serving"]', "images of [software.own] are not some of train, serve"),
        ('images = ["train"]\n', "", "[software.own] has transformers 4.46.3, but serve needs 5 or newer: write"),
        ('"4.46.3"', '"latest"', "transformers of [software.own] is 'latest', which is not a version"),
        ('from = "cpu"', 'from = "cpo"', "[profiles.own] has from = 'cpo', which is not a profile: name cpu"),
        ('from = "cpu"', 'from = "own"', "[profiles.own] has from = 'own', which comes from it: remove one `from`"),
        ('from = "cpu"', "", "torch of [profiles.own] is missing.\ntrain of [profiles.own.budget] is missing."),
        ('software = "own"', 'software = "owm"', "of [profiles.own] is owm, which does not exist (did you mean own?)"),
        ("[profiles.own]", "[profiles.Own]", "[profiles.'Own'] can't be part of an image's tag"),
    ],
)  # fmt: skip
def test_error_in_software_set_or_profile_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in OWN
    with pytest.raises(UserError) as refusal:
        with_text(tmp_path, OWN.replace(old, new, 1))
    assert message in str(refusal.value)


def test_profile_without_software_set_lists_known_sets(tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(pins.PATH.read_text().replace('[profiles.cpu]\nsoftware = "current"\n', "[profiles.cpu]\n"))
    with pytest.raises(UserError) as refusal:
        pins_file.load(path)
    found = re.findall(r"software of \S+ is missing \(name one of [^)]*\)", str(refusal.value))
    assert found == ["software of [profiles.cpu] is missing (name one of current, torch25, hf4)"]
