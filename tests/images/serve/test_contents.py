"""Programs and packages of the inference image."""

from testinfra.host import Host


def output(host: Host, command: str) -> str:
    text: str = host.check_output(f"timeout 120 {command}")
    return text


def test_serve_is_on_path_and_java_is_not(serve: Host) -> None:
    assert output(serve, "bash -c 'command -v serve'") == "/opt/berth/bin/serve"
    assert serve.run("command -v java").rc != 0


def test_training_packages_are_not_installed(serve: Host) -> None:
    for package in ("datasets", "pyarrow", "accelerate", "mpi4py", "sagemaker_training"):
        assert serve.run(f"python -c 'import {package}'").rc != 0, package
