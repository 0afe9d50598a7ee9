"""Requests of `profile add`: errors, and the tables of docker/pins.toml made from them."""

import pytest

from berth.images.pins import pins_file
from berth.images.profiles.request import (
    CompleteProfile,
    ProfileRequest,
    images_for,
    request_errors,
    tables,
)

PINS = pins_file.load()
HF = {"transformers": "4.46.3", "accelerate": "1.6.0", "datasets": "3.5.0"}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (ProfileRequest("cpu"), "docker/pins.toml has a profile cpu already: choose another name, or remove that one"),
        (ProfileRequest("hf4"), "docker/pins.toml has a software set hf4 already: choose another name"),
        (ProfileRequest("Mine"), "'Mine' can't be part of an image's tag: use lower-case letters"),
        (ProfileRequest("a/b"), "'a/b' can't be part of an image's tag"),
        *(
            (ProfileRequest(name), f"{name!r} can't be part of an image's tag")
            for name in ("x.1", "x_1", "cpu-x.y_z", "a--b")
        ),
        *((ProfileRequest(name), f"{name} is a reserved word") for name in ("train", "serve", "all", "latest")),
        (ProfileRequest("own", packages=["peft==0.15.0", "Peft==0.14.0"]), "--package names peft twice: give it once"),
        (ProfileRequest("own", environment=["FOO=1", "FOO=1", "FOO=2"]), "--env sets FOO 3 times: give it once"),
        (ProfileRequest("a" * 41), "at most 40 characters"),
        (ProfileRequest("own", "cpuu"), "--from cpuu is not a profile of docker/pins.toml (did you mean cpu?)"),
        (ProfileRequest("own", torch="new"), "--torch 'new' is not a version: write it as 2.6.0"),
        (
            ProfileRequest("own", versions={"transformers": "four"}),
            "--transformers 'four' is not a version: write it as 4.46.3",
        ),
        (
            ProfileRequest("own", packages=["peft=0.15"]),
            "--package 'peft=0.15' is not a requirement: write it as for pip",
        ),
        (
            ProfileRequest("own", packages=["peft @ git+https://host/peft"]),
            "--package 'peft @ git+https://host/peft' is a URL, and locks take files from package "
            'indexes only: write "peft==VERSION" of an index',
        ),
        (
            ProfileRequest("own", packages=["pillow @ https://host/pillow-11.0.0-py3-none-any.whl"]),
            "is a URL, and locks take files from package",
        ),
        (ProfileRequest("own", packages=["torch==2.6.0"]), "--package names torch: use --torch"),
        (ProfileRequest("own", packages=["Datasets<3"]), "--package names datasets: use --datasets"),
        (ProfileRequest("own", packages=["evaluate>0.4"]), "--package 'evaluate>0.4' has no exact version, but every"),
        (ProfileRequest("own", constraints=["numpy<<2"]), "--constraint 'numpy<<2' is not a requirement"),
        (
            ProfileRequest("own", constraints=["numpy"]),
            "--constraint 'numpy' has no bound: write it with the allowed",
        ),
        (ProfileRequest("own", environment=["FOO"]), "--env 'FOO' has no value: write it as NAME=VALUE"),
        (
            ProfileRequest("own", environment=["1A=2"]),
            "--env '1A=2' does not start with a variable's name: write it as NAME=VALUE",
        ),
        (ProfileRequest("own", day="today"), "--day 'today' is not a date: write it as 2024-12-01"),
        (ProfileRequest("own", day="2999-01-01"), "--day 2999-01-01 is in the future: leave it out"),
    ],
)
def test_invalid_request_is_reported(wanted: ProfileRequest, error: str) -> None:
    found = list(request_errors(wanted, PINS))
    assert [fault for fault in found if error in fault], found
    assert len(found) == 1


def test_all_errors_of_a_request_are_reported() -> None:
    request = ProfileRequest("cpu", "x", packages=["=="], environment=["A"], day="2999-01-01")
    assert len(list(request_errors(request, PINS))) == 5
    assert not list(request_errors(ProfileRequest("own", versions=HF, packages=["peft==0.15.0", "einops"]), PINS))


def test_tables_of_a_request() -> None:
    request = ProfileRequest("own", packages=["peft==0.15.0"], constraints=["numpy<2"], environment=["A=b=c"])
    packages = ["peft==0.15.0", "scikit-learn==1.6.1"]
    assert tables(CompleteProfile(request, HF, packages, "2025-04-18"), PINS) == {
        "software.own": {
            "images": ["train"],
            **HF,
            "openvino": "none",
            "nncf": "none",
            "scikit-learn": "1.6.1",
            "packages": ["peft==0.15.0"],
            "constraints": ["numpy<2"],
            "day": "2025-04-18",
        },
        "software.own.environment": {"A": "b=c"},
        "profiles.own": {"from": "cpu", "software": "own"},
        "profiles.own.budget": {"train": 515},
    }


def test_transformers_5_gives_both_images() -> None:
    new = CompleteProfile(ProfileRequest("own"), {**HF, "transformers": "5.1.0"}, [], "")
    found = tables(new, PINS)
    assert found["software.own"] == {**HF, "transformers": "5.1.0"}
    assert set(found["profiles.own.budget"]) == {"train", "serve"}
    assert [images_for(version) for version in ("4.57.6", "5.0.0")] == [("train",), ("train", "serve")]
