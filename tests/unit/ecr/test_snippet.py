"""What a push tells a user to paste; the SDK itself reads it in tests/local_mode."""

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
def test_it_is_python_with_the_uri_once_for_each_sdk(image: str, profile: str) -> None:
    text = estimator_snippet(image, profile, URI)
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    assert strings.count(URI) == 2
    assert not any("{" in string for string in strings if isinstance(string, str))


def test_the_sdk_that_stays_comes_first_and_the_other_names_its_end() -> None:
    for image in pins.IMAGES:
        text = estimator_snippet(image, "cpu", URI)
        assert text.startswith(V3)
        assert f"\n{V2}\n" in text
    assert "2027-07-06" in V2


def test_where_there_is_no_run_qa_it_names_a_script() -> None:
    for profile, run_qa in {"cpu": True, "cpu-hf4": False}.items():
        text = estimator_snippet("train", profile, URI)
        assert ("model_name_or_path" in text) == run_qa
        assert (text.count('"train.py"') == 2) != run_qa
        assert ("SourceCode" in text) != run_qa


def amis(text: str) -> list[str]:
    """The AMIs that the two calls of a deployment name."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    words = [word for call in calls for word in call.keywords if word.arg == "inference_ami_version"]
    return [ast.literal_eval(word.value) for word in words]


@pytest.mark.parametrize("profile", [name for name, row in PROFILES.items() if "serve" in row.images])
def test_what_is_pasted_runs_on_a_host_that_the_image_does_not_refuse(profile: str) -> None:
    """The host of the deployment has the driver of the AMI that it names, or else the instance's default."""
    row = PROFILES[profile]
    found = amis(estimator_snippet("serve", profile, URI))
    if not row.cuda:
        assert found == []
        return
    host = gpu_hosts.family(row.instances["serve"])
    assert host is not None
    drivers = {ami: driver for driver, ami in gpu_hosts.ENDPOINT_AMIS.items()}
    assert len(found) in (0, 2)
    assert len(set(found)) <= 1
    driver = drivers[found[0]] if found else host.endpoint
    known = next(cuda for cuda, branch in gpu_hosts.DRIVERS.items() if branch == driver)
    state = DriverState(version=known, code=0, devices=(Device(host.gpu, host.capability),))
    assert incompatibility(row.cuda["cuda"], 1, state) is None


def test_a_batch_transform_gets_its_ami_or_a_word_that_there_is_none() -> None:
    assert 'transform_ami_version="al2-ami-sagemaker-batch-gpu-535"' in estimator_snippet("serve", "cu124", URI)
    assert "batch transform has no host with driver 580" in estimator_snippet("serve", "cu130", URI)
    assert "transform" not in estimator_snippet("serve", "cpu", URI)
