"""What `profile add` may be asked for, and the tables that it becomes."""

import pytest

from berth.images.pins import pins_file
from berth.images.profiles.asked import (
    AskedProfile,
    CompleteProfile,
    asked_faults,
    images_of,
    tables,
)

KIT = pins_file.load()
HF = {"transformers": "4.46.3", "accelerate": "1.6.0", "datasets": "3.5.0"}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (AskedProfile("cpu"), "docker/pins.toml has a profile cpu already: choose another name, or remove that one"),
        (AskedProfile("hf4"), "docker/pins.toml has a software set hf4 already: choose another name"),
        (AskedProfile("Mine"), "'Mine' can't be part of an image's tag: call the profile by small letters"),
        (AskedProfile("a/b"), "'a/b' can't be part of an image's tag"),
        *(
            (AskedProfile(name), f"{name!r} can't be part of an image's tag")
            for name in ("x.1", "x_1", "cpu-x.y_z", "a--b")
        ),
        *((AskedProfile(name), f"{name} is a word of the commands") for name in ("train", "serve", "all", "latest")),
        (AskedProfile("own", packages=["peft==0.15.0", "Peft==0.14.0"]), "--package names peft twice: leave one"),
        (AskedProfile("own", environment=["FOO=1", "FOO=1", "FOO=2"]), "--env sets FOO 3 times: leave one"),
        (AskedProfile("a" * 41), "40 characters at most"),
        (AskedProfile("own", "cpuu"), "--from cpuu is no row of docker/pins.toml (did you mean cpu?)"),
        (AskedProfile("own", torch="new"), "--torch 'new' is no version: write it as 2.6.0"),
        (
            AskedProfile("own", versions={"transformers": "four"}),
            "--transformers 'four' is no version: write it as 4.46.3",
        ),
        (AskedProfile("own", packages=["peft=0.15"]), "--package 'peft=0.15' is no requirement: write it as pip takes"),
        (
            AskedProfile("own", packages=["peft @ git+https://host/peft"]),
            "--package 'peft @ git+https://host/peft' asks for a file or a repository by its URL, and locks have the "
            'files of package indexes only: write "peft==VERSION" of an index',
        ),
        (
            AskedProfile("own", packages=["pillow @ https://host/pillow-11.0.0-py3-none-any.whl"]),
            "asks for a file or a repository by its URL",
        ),
        (AskedProfile("own", packages=["torch==2.6.0"]), "--package names torch, which stands by itself: give its"),
        (AskedProfile("own", packages=["Datasets<3"]), "--package names datasets, which stands by itself: give its"),
        (AskedProfile("own", packages=["evaluate>0.4"]), "--package 'evaluate>0.4' leaves the version open of what"),
        (AskedProfile("own", constraints=["numpy<<2"]), "--constraint 'numpy<<2' is no requirement"),
        (AskedProfile("own", constraints=["numpy"]), "--constraint 'numpy' bounds nothing: write it with the versions"),
        (AskedProfile("own", environment=["FOO"]), "--env 'FOO' has no value: write it as NAME=VALUE"),
        (AskedProfile("own", environment=["1A=2"]), "--env '1A=2' names no variable: write it as NAME=VALUE"),
        (AskedProfile("own", day="today"), "--day 'today' is no day: write it as 2024-12-01"),
        (AskedProfile("own", day="2999-01-01"), "--day 2999-01-01 is not yet: leave it out"),
    ],
)
def test_what_can_not_be_asked_for_is_a_sentence(asked: AskedProfile, says: str) -> None:
    found = list(asked_faults(asked, KIT))
    assert [fault for fault in found if says in fault], found
    assert len(found) == 1


def test_all_that_is_wrong_is_said_together() -> None:
    asked = AskedProfile("cpu", "x", packages=["=="], environment=["A"], day="2999-01-01")
    assert len(list(asked_faults(asked, KIT))) == 5
    assert not list(asked_faults(AskedProfile("own", versions=HF, packages=["peft==0.15.0", "einops"]), KIT))


def test_the_tables_have_all_that_was_chosen() -> None:
    asked = AskedProfile("own", packages=["peft==0.15.0"], constraints=["numpy<2"], environment=["A=b=c"])
    packages = ["peft==0.15.0", "scikit-learn==1.6.1"]
    assert tables(CompleteProfile(asked, HF, packages, "2025-04-18"), KIT) == {
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


def test_a_set_for_transformers_5_is_for_both_images() -> None:
    new = CompleteProfile(AskedProfile("own"), {**HF, "transformers": "5.1.0"}, [], "")
    found = tables(new, KIT)
    assert found["software.own"] == {**HF, "transformers": "5.1.0"}
    assert set(found["profiles.own.budget"]) == {"train", "serve"}
    assert [images_of(version) for version in ("4.57.6", "5.0.0")] == [("train",), ("train", "serve")]
