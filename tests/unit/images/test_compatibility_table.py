"""docker/compatibility.json: how it is made of an index, and what it says. That it agrees with the pins is in
test_combinations.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.contract import gpu_hosts
from berth.images import compatibility_table
from berth.images.build_network import Network, PackageIndex
from berth.images.index_metadata import Index, parse_project
from tests.doubles.package_index import JsonIndex, json_index

TABLE = compatibility_table.load()
PINS_OF_TORCH = (
    "Requires-Dist: cuda-toolkit[cudart]==13.0.3; platform_system == 'Linux'\n"
    "Requires-Dist: nvidia-cudnn-cu13==9.20.0.48; platform_system == 'Linux'\n"
    "Requires-Dist: nvidia-nccl-cu13==2.29.7; platform_system == 'Linux'\n"
    "Requires-Dist: triton~=3.7.0; platform_system == 'Linux'\n"
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonIndex]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with json_index() as running:
        day = "2026-07-08T00:00:00Z"
        running.add("torch", "2.13.0", PINS_OF_TORCH, "cp311-cp311-manylinux_2_28_x86_64", upload_time=day)
        running.add("torch", "1.13.1")
        running.add("triton", "3.7.1", tag="cp311-cp311-manylinux_2_28_x86_64")
        running.add("torchvision", "0.28.0", "Requires-Dist: torch (==2.13.0)\n", upload_time=day)
        headers = "Requires-Dist: torch>=2.6; extra == 'torch'\nRequires-Dist: regex>=2020\n"
        for version in ("5.22.0", "5.22.1", "5.23.0", "5.24.0rc1", "4.25.0"):
            running.add("transformers", version, headers, requires_python=">=3.11")
        running.add("transformers", "5.22.2", headers, yanked="broken")
        for project, version in {"accelerate": "1.15.0", "datasets": "5.2.0", "tokenizers": "0.23.1"}.items():
            running.add(project, version)
        for version, month in {"1.26.4": "2024-02", "2.0.0": "2024-06", "2.1.0": "2024-08"}.items():
            running.add("numpy", version, upload_time=f"{month}-16T00:00:00Z")
        yield running


def test_the_table_is_made_of_what_the_index_says(served: JsonIndex, tmp_path: Path) -> None:
    steps: list[str] = []
    with Index(Network(None, PackageIndex(url=served.url), (), "", "", "")) as index:
        made = compatibility_table.make(index, steps.append)
    compatibility_table.write(made, tmp_path / "table.json")
    found = compatibility_table.load(tmp_path / "table.json")
    assert list(found.releases["transformers"]) == ["5.23.0", "5.22.1"]
    assert list(found.releases["torch"]) == ["2.13.0"]
    torch = found.row("torch", "2.13.0+cpu")
    assert dict(torch.cuda) == {"cuda": "13.0.3", "cudnn": "9.20.0", "nccl": "2.29.7", "triton": "3.7.1"}
    assert (torch.day, torch.pythons) == ("2026-07-08", ("3.11",))
    assert found.row("transformers", "5.23.0").bounds == {"torch": ">=2.6"}, "of what the table has no more"
    assert (found.row("transformers", "5.23.0").requires_python, found.numpy_2) == (">=3.11", "2024-06-16")
    assert steps[0] == "asking for 1 releases of torch"
    assert "127.0.0.1" not in (tmp_path / "table.json").read_text()


def test_an_index_that_ends_in_the_middle_leaves_the_table(served: JsonIndex) -> None:
    served.answers = 6
    with Index(Network(None, PackageIndex(url=served.url), (), "", "", "")) as index, pytest.raises(UserError):
        compatibility_table.make(index, lambda _: None)


def test_the_committed_table_names_its_command_and_no_host() -> None:
    text = compatibility_table.PATH.read_text()
    assert json.loads(text)["made"].startswith(f"by `{compatibility_table.COMMAND}` on 20")
    assert "://" not in text
    assert len(text) < 60_000


def test_the_committed_table_has_what_is_asked_of_it() -> None:
    assert {"2.0.0", "2.5.1", "2.13.0"} <= TABLE.releases["torch"].keys()
    assert all(row.cuda for row in TABLE.releases["torch"].values())
    assert TABLE.row("transformers", "4.26.1").bounds == {
        "accelerate": ">=0.10.0",
        "huggingface-hub": "<1.0,>=0.11.0",
        "numpy": ">=1.17",
        "tokenizers": "!=0.11.3,<0.14,>=0.11.1",
        "torch": "!=1.12.0,>=1.7",
    }
    assert TABLE.complete == frozenset(), "what came out later is not in it"


def test_the_tables_drivers_are_those_of_the_images() -> None:
    assert TABLE.drivers == {gpu_hosts.dotted(cuda): branch for cuda, branch in gpu_hosts.DRIVERS.items()}


def test_an_old_patch_of_tokenizers_counts_too() -> None:
    files = [{"filename": f"tokenizers-{version}-py3-none-any.whl"} for version in ("0.13.2", "0.13.3", "0.9.4")]
    releases = parse_project({"name": "tokenizers", "files": files})
    found = compatibility_table.chosen_releases("tokenizers", releases)
    assert [str(each.version) for each in found] == ["0.13.3", "0.13.2"]


@pytest.mark.parametrize("text", ["", "[]", '{"releases": {"torch": 1}}', '{"releases": {}}'])
def test_a_table_that_cant_be_read_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(UserError, match=r"can't be read .* restore it from the repository, or run `python build\.py"):
        compatibility_table.load(tmp_path / "table.json")
