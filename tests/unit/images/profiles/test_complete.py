"""What the package index says of what was asked for; each thing that can't be is a sentence."""

import datetime
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images import compatibility_table, pins
from berth.images.build_network import Network, PackageIndex
from berth.images.combinations import Known
from berth.images.profiles.asked import AskedProfile
from berth.images.profiles.complete import check_torch, complete
from tests.doubles.package_index import JsonIndex, json_index

KIT = pins.load()
FILES = (
    ("torch", "2.6.0", "2025-01-29", ""),
    ("torch", "2.13.0", "2026-07-01", ""),
    ("transformers", "4.46.3", "2024-11-18", "Requires-Dist: torch>=1.13; extra == 'torch'\n"),
    ("transformers", "5.1.0", "2026-08-01", "Requires-Dist: torch>=2.6; extra == 'torch'\n"),
    ("accelerate", "1.1.1", "2024-11-12", ""),
    ("accelerate", "1.6.0", "2025-04-01", ""),
    ("datasets", "3.1.0", "2024-10-31", ""),
    ("datasets", "5.0.0", "2026-05-01", ""),
    ("peft", "0.15.0", "2025-03-19", "Requires-Dist: transformers<5\n"),
    ("einops", "0.8.1", "2025-02-09", ""),
    ("evaluate", "0.4.3", "2024-09-11", ""),
    ("evaluate", "0.4.6", "2025-09-18", ""),
    ("scikit_learn", "1.5.2", "2024-09-11", ""),
    ("scikit_learn", "1.6.1", "2025-01-10", ""),
    ("scikit_learn", "1.9.1", "2026-06-01", ""),
    ("pillow", "11.0.0", "2024-10-15", ""),
    ("pillow", "13.0.0", "2026-07-01", ""),
    ("tensorboardx", "2.6.5", "2024-01-01", ""),
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonIndex]:
    """An index of some packages, and nothing known besides."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compatibility_table, "load", lambda: Known({}))
    with json_index() as index:
        for name, version, day, requires in FILES:
            index.add(name, version, requires, upload_time=f"{day}T00:00:00Z")
        yield index


def network(index: JsonIndex, *folders: Path) -> Network:
    return Network(None, PackageIndex(url=index.url, folders=folders), (), "", "", "")


def test_what_is_left_open_is_as_of_the_sets_own_day(served: JsonIndex) -> None:
    """The kit's scikit-learn came out later, and would want what did; its tensorboardx did not."""
    asked = AskedProfile("own", versions={"transformers": "4.46.3"}, packages=["peft==0.15.0", "einops"])
    found = complete(asked, KIT, network(served))
    assert (found.day, found.torch, found.hardware) == ("2025-04-18", KIT.profile("cpu").torch, {})
    assert {name: found.versions[name] for name in ("transformers", "accelerate", "datasets")} == {
        "transformers": "4.46.3",
        "accelerate": "1.6.0",
        "datasets": "3.1.0",
    }
    own = ["peft==0.15.0", "einops==0.8.1"]
    assert list(found.packages) == [*own, "evaluate==0.4.3", "scikit-learn==1.6.1", "pillow==11.0.0"]


def test_a_line_is_said_to_be_its_first_release_and_the_day_has_its_reason(served: JsonIndex) -> None:
    for micro in ("0", "1", "2", "3rc1"):
        served.add("liner", f"4.46.{micro}", upload_time="2024-11-01T00:00:00Z")
    served.add("liner", "4.47.0", upload_time="2024-12-20T00:00:00Z")
    steps: list[str] = []
    found = complete(AskedProfile("own", packages=["liner==4.46"]), KIT, network(served), steps.append)
    assert "liner 4.46 is the first release of that line; the newest is 4.46.2" in steps
    assert "all else is as of 2024-12-01, 30 days after liner 4.46; --day changes it" in steps
    assert "asking for the newest transformers that fits, as of 2024-12-01" in steps
    assert found.day == "2024-12-01"
    steps.clear()
    complete(AskedProfile("own", packages=["liner==4.47"]), KIT, network(served), steps.append)
    assert not [each for each in steps if "first release" in each], "there is no other"


def test_without_versions_the_newest_of_today_are_taken(served: JsonIndex) -> None:
    found = complete(AskedProfile("own"), KIT, network(served))
    assert (found.versions["transformers"], found.versions["datasets"]) == ("5.1.0", "5.0.0")
    assert (found.day, found.packages) == ("", [])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            AskedProfile("own", versions={"transformers": "4.46.9"}),
            r"^transformers 4\.46\.9 was never released: the nearest are 4\.46\.3 and 5\.1\.0\.$",
        ),
        (AskedProfile("own", packages=["peft===new"]), r"^peft new was never released: the nearest is 0\.15\.0\.$"),
        (
            AskedProfile("own", packages=["pefft==1", "xyz==2"]),
            r"has no package pefft: l.*\. Also, .* no package xyz: look",
        ),
        (
            AskedProfile("own", versions={"transformers": "5.1.0"}, packages=["peft==0.15.0"]),
            r"^peft 0\.15\.0 wants transformers <5, and not 5\.1\.0: choose another version of peft or transformers",
        ),
        (
            AskedProfile("own", constraints=["transformers<4"]),
            r"^No release of transformers that goes with torch 2\.13\S+ was found on \S+: name its version\.$",
        ),
        (
            AskedProfile("own", constraints=["transformers<5"], day="2020-01-01"),
            r"^No release of transformers that goes with torch \S+ and was uploaded by 2020-01-01 was found on \S+: "
            r"name its version, or give a later --day\.$",
        ),
        (
            AskedProfile("own", packages=["peft==0.15.0"], constraints=["peft<0.15"]),
            r"^peft is to be 0\.15\.0, and the constraint peft<0\.15 excludes it: take the constraint out\.$",
        ),
        (
            AskedProfile("own", versions={"transformers": "4.46.3"}, day="2024-01-01", constraints=["einops>=0.8"]),
            r"^transformers 4\.46\.3 came out on 2024-11-18 and the first einops>=0\.8 \(0\.8\.1\) came out on "
            r"2025-02-09, and all else would be as of 2024-01-01: give --day 2025-02-09 or a later one",
        ),
        (AskedProfile("own", packages=["evaluat==0.4"]), r"has no package evaluat: did you mean evaluate\?$"),
        (AskedProfile("own", constraints=["numpy<2"]), r"has no package numpy: see whether pip's index-url, or"),
        (AskedProfile("own", constraints=["einopz<1"]), r"has no package einopz: look at how it is spelt\.$"),
    ],
)
def test_what_can_not_be_together_is_a_sentence(served: JsonIndex, asked: AskedProfile, says: str) -> None:
    with pytest.raises(UserError, match=says):
        complete(asked, KIT, network(served))


def test_a_python_that_the_base_lacks_is_a_sentence(served: JsonIndex) -> None:
    served.add("newer", "1.0", requires_python=">=3.13", upload_time="2025-01-01T00:00:00Z")
    with pytest.raises(UserError, match=r"newer 1\.0 is for Python >=3\.13, and the base has Python 3\.11"):
        complete(AskedProfile("own", packages=["newer==1.0"]), KIT, network(served))


@pytest.mark.parametrize("package", ["deepspeed==0.15.4", "deepspeed"])
@pytest.mark.parametrize("wheel", [False, True])
def test_what_comes_as_source_only_is_a_sentence(served: JsonIndex, package: str, wheel: bool) -> None:
    served.facts["deepspeed-0.15.4.tar.gz"] = {"upload-time": "2024-11-01T00:00:00Z"}
    if wheel:
        served.add("deepspeed", "0.14.0", upload_time="2024-10-01T00:00:00Z")
    remedy = r"choose another, of which 0\.14\.0 is the newest" if wheel else r"no release of it has, so put a wheel"
    says = rf"^deepspeed 0\.15\.4 has no wheel for Python 3\.11, and an image builds none: {remedy}"
    with pytest.raises(UserError, match=says):
        complete(AskedProfile("own", packages=[package]), KIT, network(served))


@pytest.mark.parametrize("answers", [0, 1, 3, 6])
def test_an_index_that_stops_answering_is_a_sentence(served: JsonIndex, answers: int) -> None:
    served.answers = answers
    with pytest.raises(UserError, match=r"The package index .* (gave no answer for|does not say) .*: .*again"):
        complete(AskedProfile("own", versions={"transformers": "4.46.3"}), KIT, network(served))


@contextmanager
def torchs_page(*versions: str) -> Iterator[str]:
    """The address of an index with torch in these versions."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            links = "".join(f'<a href="torch-{each.replace("+", "%2B")}-cp311-x.whl">' for each in versions)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(links.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=partial(server.serve_forever, 0.05))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_torch_that_can_not_be_had_is_known_before_the_rest_is_asked_for(served: JsonIndex) -> None:
    row = replace(KIT.profile("cpu"), torch_index="http://127.0.0.1:9/none")
    kit = replace(KIT, profiles={**KIT.profiles, "cpu": row})
    asked = AskedProfile("own", torch="2.6.0", packages=["peft==0.15.0"], constraints=["peft<0.15"])
    with pytest.raises(UserError, match=r"^peft is to be .* out\. Also, torch 2\.6\.0\+cpu can't be had here"):
        complete(asked, kit, network(served))
    assert [path for path, _ in served.asked if "/accelerate" in path] == []


def test_each_project_is_asked_for_once(served: JsonIndex) -> None:
    """By whatever looks into its releases."""
    served.add("liner", "4.46", upload_time="2024-11-01T00:00:00Z")
    asked = AskedProfile("own", packages=["liner==4.46", "einops"], constraints=["peft<1"], day="2026-11-01")
    complete(asked, KIT, network(served))
    pages = [path for path, _ in served.asked if path.startswith("/simple/")]
    assert sorted(pages) == sorted(set(pages))
    assert {"/simple/liner/", "/simple/einops/", "/simple/peft/"} <= set(pages)


def test_a_torch_that_can_not_be_had_is_a_sentence(served: JsonIndex, tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-x.whl").touch()
    check_torch("2.13.0+cpu", "http://127.0.0.1:9/none", network(served, tmp_path))
    silent = (
        r"its index http://127\.0\.0\.1:9/none does not answer \(Connection refused\), and pip's folders have 2\.13"
    )
    with pytest.raises(
        UserError, match=rf"^torch 2\.6\.0\+cpu can't be had here: {silent}\.0\+cpu: lay its wheel into"
    ):
        check_torch("2.6.0+cpu", "http://127.0.0.1:9/none", network(served, tmp_path))
    with torchs_page("2.5.1+cpu", "2.6.0+cpu", "2.7.0+cpu") as url:
        check_torch("2.6.0+cpu", url, network(served))
        with pytest.raises(
            UserError, match=r"^torch 2\.6\.1\+cpu is not at .*: the nearest there are 2\.6\.0 and 2\.7"
        ):
            check_torch("2.6.1+cpu", url, network(served))


def test_another_torch_has_layers_of_its_own(served: JsonIndex, tmp_path: Path) -> None:
    (tmp_path / "torch-2.6.0+cpu-cp311-cp311-x.whl").touch()
    asked = AskedProfile("own", torch="2.6.0", versions={"transformers": "4.46.3"})
    found = complete(asked, KIT, network(served, tmp_path))
    assert (found.torch, found.hardware) == ("2.6.0+cpu", {"torch": "2.6.0+cpu"})
    assert found.day == (datetime.date(2024, 11, 18) + datetime.timedelta(days=30)).isoformat()
