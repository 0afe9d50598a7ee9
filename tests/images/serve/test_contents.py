"""Programs and packages of the inference image."""

from testinfra.host import Host


def test_java_is_not_installed(serve: Host) -> None:
    assert serve.run("command -v java").rc != 0


def test_training_packages_are_not_installed(serve: Host) -> None:
    for package in ("datasets", "pyarrow", "accelerate", "mpi4py", "sagemaker_training"):
        assert serve.run(f"python -c 'import {package}'").rc != 0, package
