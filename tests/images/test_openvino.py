"""The pruned OpenVINO in the images works and sends no telemetry."""

import json

import docker
import pytest
from docker.models.images import Image
from testinfra.host import Host

from berth.images.pins import pins

# The name under which OpenVINO imports its telemetry, which the images omit.
TELEMETRY = "openvino_telemetry"
PROGRAM = """
import json
import openvino, openvino.tools.ovc.convert_impl, torch

model = torch.nn.Sequential(torch.nn.Embedding(99, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).eval()
graph = openvino.convert_model(model, example_input=torch.ones(2, 3, dtype=torch.int64))
openvino.save_model(graph, "/tmp/graph.xml", compress_to_fp16=False)
core = openvino.Core()
settings = {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
compiled = core.compile_model(core.read_model("/tmp/graph.xml"), "CPU", settings)
tokens = torch.arange(20).reshape(4, 5)  # another shape than the example's
found = torch.from_numpy(compiled(tokens.numpy())[0])
print(json.dumps({
    "version": openvino.__version__.partition("-")[0],
    "devices": core.available_devices,
    "as_torch": torch.allclose(found, model(tokens), atol=1e-4),
    "telemetry": openvino.tools.ovc.convert_impl.tm.__name__,
}))
"""
# The images' NNCF must quantise without sending telemetry. tests/unit/runtime/engines measure the quantised model.
QUANTISING = """
import json
import nncf, numpy, openvino, torch

model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
graph = openvino.convert_model(model, example_input=torch.ones(2, 8))
rows = [numpy.random.default_rng(0).normal(size=(1, 8)).astype("float32") for _ in range(9)]
int8 = nncf.quantize(graph, nncf.Dataset(rows), subset_size=9)
print(json.dumps({
    "version": nncf.__version__,
    "quantised": any(node.get_type_name() == "FakeQuantize" for node in int8.get_ops()),
    "telemetry": type(nncf.telemetry.wrapper.telemetry).__module__,
}))
"""
# Counts the TCP connections and UDP datagrams of the container, including those to loopback, where name servers may be.
# This covers every process and library, also those that Python does not see. The interfaces' packets would also count
# what the kernel sends by itself, like answers to the host's ARP requests.
WATCHED = """
set -eu
unset CI  # the telemetry is off if this is set
sent() {
    awk '/^Tcp: [0-9]/ { sum += $6 }  # ActiveOpens
         /^Udp: [0-9]/ { sum += $5 }  # OutDatagrams
         /^Udp6OutDatagrams/ { sum += $2 }
         END { print sum }' /proc/net/snmp /proc/net/snmp6
}
sent
python -c "$PROGRAM"
sleep 2  # for requests of a child process
sent
python -c 'import socket; socket.getaddrinfo("control.invalid", 443)' 2>/dev/null || true
sent
"""


@pytest.fixture
def has_openvino(image: Image, profile: pins.Profile) -> Image:
    """An image with OpenVINO; skips the inference images with CUDA, which have none."""
    if profile.openvino(image.labels["berth.kit"]) == pins.NONE:
        pytest.skip(f"the image {image.labels['berth.kit']} of {profile.name} has no OpenVINO; another test checks it")
    return image


def watched(client: docker.DockerClient, image: Image, program: str) -> dict[str, object]:
    """The result of a program in a container with a network; AssertionError if it sends anything.

    One name lookup after it proves that the counter works. The name server is the container itself, so no
    lookup leaves this machine.
    """
    output = client.containers.run(
        image.id,
        ["-c", WATCHED],
        entrypoint=["bash"],
        environment={"PROGRAM": program},
        network_mode="bridge",
        dns=["127.0.0.1"],
        nano_cpus=1_500_000_000,
        remove=True,
    )
    before, *printed, after, control = output.decode().splitlines()
    assert int(control) > int(after), "the counter must see a lookup"
    assert after == before, "the program sent something"
    result: dict[str, object] = json.loads(printed[-1])
    return result


@pytest.mark.kits_own
def test_openvino_converts_and_runs_without_telemetry(
    has_openvino: Image, client: docker.DockerClient, profile: pins.Profile
) -> None:
    assert watched(client, has_openvino, PROGRAM) == {
        "version": profile.packages["openvino"],
        "devices": ["CPU"],
        "as_torch": True,
        "telemetry": "openvino.tools.ovc.telemetry_stub",
    }


@pytest.mark.kits_own
def test_nncf_quantises_without_telemetry(
    has_openvino: Image, client: docker.DockerClient, profile: pins.Profile
) -> None:
    if has_openvino.labels["berth.kit"] != "train":
        pytest.skip("NNCF is in the training image")
    found = watched(client, has_openvino, QUANTISING)
    assert found == {"version": profile.packages["nncf"], "quantised": True, "telemetry": "unittest.mock"}


@pytest.mark.kits_own
def test_no_package_requires_the_telemetry(either: Host) -> None:
    """Otherwise pip would install it for a job whose requirements include openvino."""
    listing = "import importlib.metadata as m; print([r for d in m.distributions() for r in d.requires or ()])"
    requirements = either.check_output(f"timeout 60 python -c '{listing}'")
    assert "numpy" in requirements
    assert TELEMETRY.replace("_", "-") not in requirements
    assert either.run(f"python -c 'import {TELEMETRY}'").rc != 0


@pytest.mark.kits_own
def test_cuda_inference_image_has_no_openvino(serve: Host, profile: pins.Profile) -> None:
    assert (serve.run("timeout 60 python -c 'import openvino'").rc == 0) == (not profile.cuda)
