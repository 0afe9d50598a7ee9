"""A user's own image `FROM` ours, with one more package, trains his program as ours does."""

from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from berth.images import pins
from berth.local.job import run_train

PROGRAM = """
import tabulate
from berth.qa import squad
print("tabulate", tabulate.__version__, flush=True)
print(tabulate.tabulate([["algo-1", 1]], headers=["host", "rank"], tablefmt="github"), flush=True)
"""


@pytest.fixture(scope="module")
def derived(derive: Callable[..., str]) -> str:
    return derive("tabulate==0.9.0")


def test_a_program_in_a_derived_image_imports_its_package(derived: str, tmp_path: Path) -> None:
    for folder in ("data", "code"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data/rows.txt").write_text("1\n")
    (tmp_path / "code/train.py").write_text(PROGRAM)
    log: list[str] = []
    done = run_train(
        tmp_path / "data",
        image=derived,
        output=tmp_path / "out",
        code=tmp_path / "code",
        hyperparameters={"sagemaker_program": "train.py"},
        log=log.append,
        timeout=120,
    )
    print("\n".join(log))
    assert done.exit_code == 0
    assert "algo-1 | tabulate 0.9.0" in log
    assert "algo-1 | | algo-1 |      1 |" in log


def test_the_derived_image_is_still_ours(derived: str, client: docker.DockerClient, profile: pins.Profile) -> None:
    configured = client.images.get(derived).attrs["Config"]
    original = client.images.get(f"berth-train:{profile.name}").attrs["Config"]
    for name in ("Entrypoint", "Cmd", "Env"):
        assert configured[name] == original[name]
