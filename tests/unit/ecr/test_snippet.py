"""The Python that a push prints to paste; tests/local_mode runs it with the SDKs."""

import ast

import pytest

from berth.contract import gpu_hosts
from berth.ecr.snippet import V2, V3, estimator_snippet
from berth.images.pins import pins, pins_file
from berth.runtime.gpu.compatibility import incompatibility
from berth.runtime.gpu.driver import Device, DriverState

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train@sha256:" + "0" * 64
PROFILES = pins_file.load().profiles


@pytest.mark.parametrize("image", pins.IMAGES)
@pytest.mark.parametrize("profile", PROFILES)
def test_snippet_is_python_with_the_uri_for_both_sdks(image: str, profile: str) -> None:
    text = estimator_snippet(image, profile, URI)
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    assert strings.count(URI) == 2
    assert not any("{" in string for string in strings if isinstance(string, str))


def test_sdk_v3_comes_first_and_v2_names_its_end() -> None:
    for image in pins.IMAGES:
        text = estimator_snippet(image, "cpu", URI)
        assert text.startswith(V3)
        assert f"\n{V2}\n" in text
    assert "2027-07-06" in V2


@pytest.mark.parametrize(("profile", "instance"), [("cpu", "ml.c6i"), ("cu130", "ml.g5")])
def test_snippet_proposes_an_instance_of_the_profile(profile: str, instance: str) -> None:
    for image in pins.IMAGES:
        assert f'"{instance}.' in estimator_snippet(image, profile, URI)


def test_profile_without_run_qa_gets_a_script() -> None:
    for profile, run_qa in {"cpu": True, "cpu-hf4": False}.items():
        text = estimator_snippet("train", profile, URI)
        assert ("model_name_or_path" in text) == run_qa
        assert (text.count('"train.py"') == 2) != run_qa
        assert ("SourceCode" in text) != run_qa


def amis(text: str) -> list[str]:
    """The AMIs in a deployment's calls, one per SDK."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    words = [word for call in calls for word in call.keywords if word.arg == "inference_ami_version"]
    return [ast.literal_eval(word.value) for word in words]


@pytest.mark.parametrize("profile", [name for name, profile in PROFILES.items() if "serve" in profile.images])
def test_snippets_host_has_a_driver_that_the_image_accepts(profile: str) -> None:
    """The host's driver is that of the named AMI, otherwise the default of the instance type."""
    known = PROFILES[profile]
    named_amis = amis(estimator_snippet("serve", profile, URI))
    if not known.cuda:
        assert named_amis == []
        return
    host = gpu_hosts.family(known.instances["serve"])
    assert host is not None
    drivers = {ami: driver for driver, ami in gpu_hosts.ENDPOINT_AMIS.items()}
    assert len(named_amis) in (0, 2)
    assert len(set(named_amis)) <= 1
    driver = drivers[named_amis[0]] if named_amis else host.endpoint
    cuda_version = next(cuda for cuda, branch in gpu_hosts.DRIVERS.items() if branch == driver)
    state = DriverState(version=cuda_version, code=0, devices=(Device(host.gpu, host.capability),))
    assert incompatibility(known.cuda["cuda"], 1, state) is None


def test_snippet_names_ami_of_batch_transform_or_that_none_fits() -> None:
    assert 'transform_ami_version="al2-ami-sagemaker-batch-gpu-535"' in estimator_snippet("serve", "cu124", URI)
    assert "batch transform has no host with driver 580" in estimator_snippet("serve", "cu130", URI)
    assert "transform" not in estimator_snippet("serve", "cpu", URI)
