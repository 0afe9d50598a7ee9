"""docker/pins.toml: every pin is used, the locks match it, and its errors are reported."""

import re
import tomllib
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.contract import gpu_hosts
from berth.images.locks import lock_text, locks
from berth.images.pins import layer_files, pins, pins_file

PINS = pins_file.load()
CPU = PINS.profile("cpu")
DOCKER = pins.ROOT / "docker"
# Lines of pins.toml that tests replace.
CPU_TORCH, CUDA_TORCH = (f'torch = "{PINS.profile(name).torch}"' for name in ("cpu", "cu130"))
BUILT_PROFILES = [name for name in PINS.profiles if (DOCKER / "locks" / name).exists()]


def load_text(folder: Path, text: str) -> pins.Pins:
    """The pins of a pins.toml with this text."""
    (folder / "pins.toml").write_text(text)
    return pins_file.load(folder / "pins.toml")


def all_locks(profile: str) -> str:
    return "".join(path.read_text() for path in sorted((DOCKER / "locks" / profile).glob("*.txt")))


def only_in_serve(name: str) -> bool:
    """Whether a package of [packages] is in the inference image only."""
    return name in ("starlette", "uvicorn", "prometheus-client", *PINS.source_only["serve"])


@pytest.mark.parametrize("profile", BUILT_PROFILES)
def test_every_pinned_package_is_locked(profile: str) -> None:
    profile_pins = PINS.profile(profile)
    text = all_locks(profile) + "".join((locks.LOCKS / path).read_text() for path in locks.torch_locks(profile_pins))
    pinned = {
        name: each
        for name, each in profile_pins.packages.items()
        if "serve" in profile_pins.images or not only_in_serve(name)
    }
    for name, version in pinned.items():
        assert re.search(rf"^{re.escape(name)}=={re.escape(version)} ", text, flags=re.MULTILINE), f"{name} {version}"


CUDA_PROFILES = [name for name, profile_pins in PINS.profiles.items() if profile_pins.cuda]
CUDA_HARDWARE = [name for name in CUDA_PROFILES if PINS.profile(name).hardware == name]


def test_gpu_hosts_has_every_cuda_profile() -> None:
    known = {name: gpu_hosts.parse(PINS.profile(name).cuda["cuda"]) for name in CUDA_HARDWARE}
    assert known == gpu_hosts.PROFILES
    assert list(gpu_hosts.PROFILES.values()) == sorted(known.values(), reverse=True), "the newest comes first"


def test_every_build_tool_is_locked() -> None:
    text = (locks.LOCKS / locks.BUILD_TOOLS).read_text()
    assert dict(re.findall(r"^(\S+)==(\S+) ", text, flags=re.MULTILINE)).items() >= PINS.build_tools.items()


@pytest.mark.parametrize("profile", BUILT_PROFILES)
def test_locks_match_requests_and_have_hashes(profile: str) -> None:
    profile_pins = PINS.profile(profile)
    requested = {request.path for request in locks.lock_requests(PINS, profile_pins)} | {
        *locks.torch_locks(profile_pins)
    }
    written = {str(path.relative_to(locks.LOCKS)) for path in (locks.LOCKS / profile).glob("*.txt")}
    assert written == requested - {locks.BUILD_TOOLS}
    empty = {
        path.stem for path in (locks.LOCKS / profile).glob("*.txt") if not lock_text.locked_names(path.read_text())
    }
    assert empty == (set() if profile_pins.cuda else {*lock_text.NVIDIA_LAYERS})
    for package in re.split(r"\n(?=\S)", all_locks(profile)):
        if not package.startswith("#"):
            assert "--hash=sha256:" in package, package.splitlines()[0]


@pytest.mark.parametrize("profile", BUILT_PROFILES)
def test_locks_do_not_repeat_packages_of_layers_below(profile: str) -> None:
    for request in locks.lock_requests(PINS, PINS.profile(profile)):
        own = set(lock_text.locked_names((locks.LOCKS / request.path).read_text()))
        below = {name for lock in request.below for name in lock_text.locked_names((locks.LOCKS / lock).read_text())}
        assert not own & set(request.omit), request.path
        # A software set may bound packages that lower layers have in another version.
        assert own & below <= ({"fsspec", "setuptools"} if request.above else set()), request.path


@pytest.mark.parametrize("profile", BUILT_PROFILES)
def test_layer_files_match_pins(profile: str) -> None:
    folder = locks.LOCKS / profile
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".txt"]
    found = {str(path.relative_to(folder)): path.read_text() for path in paths}
    assert found == layer_files.layer_files(PINS.profile(profile)), "run `python build.py pins --no-locks`"


@pytest.mark.parametrize("path", [*locks.LOCKS.rglob("*.txt"), pins.ROOT / "tests" / "requirements.txt"], ids=str)
def test_locks_do_not_contain_openvino_telemetry(path: Path) -> None:
    assert locks.OPENVINO_TELEMETRY not in lock_text.locked_names(path.read_text())


@pytest.mark.parametrize("profile", [name for name in BUILT_PROFILES if "nncf" in PINS.profile(name).packages])
def test_nncf_is_locked_without_ignored_dependencies(profile: str) -> None:
    locked = set(lock_text.locked_names(all_locks(profile)))
    assert "nncf" in locked
    assert not locked & set(locks.NNCF_WITHOUT)
    layer = (pins.ROOT / "docker" / "layers" / "deps.sh").read_text()
    assert f"Requires-Dist: ({'|'.join(locks.NNCF_WITHOUT)})" in layer


def test_only_cuda_inference_images_lack_openvino() -> None:
    without = [
        (name, image)
        for name, profile_pins in PINS.profiles.items()
        for image in profile_pins.images
        if profile_pins.openvino(image) == pins.NONE and "openvino" in profile_pins.packages
    ]
    assert without == [(name, "serve") for name in CUDA_PROFILES if "openvino" in PINS.profile(name).packages]
    for name in (
        each for each in BUILT_PROFILES if "serve" in PINS.profile(each).images
    ):  # numpy is in the layer of OpenVINO only
        deps = (locks.LOCKS / name / "deps-serve.txt").read_text()
        assert ("numpy" in lock_text.locked_names(deps)) == ((name, "serve") in without)


def test_profiles_of_one_software_set_differ_only_in_hardware_packages() -> None:
    cpu, cu130 = PINS.profile("cpu"), PINS.profile("cu130")
    # PyPI has torchvision only for CUDA's torch; omitted packages are set to "none".
    assert {**cpu.packages, "torch": cpu.torch.partition("+")[0]} == {
        name: version for name, version in cu130.packages.items() if name != "torchvision"
    }
    assert [
        name for name, profile_pins in PINS.profiles.items() if "torchvision" in profile_pins.packages
    ] == CUDA_PROFILES


def test_base_is_pinned_by_digest() -> None:
    assert re.fullmatch(r"debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", PINS.base_image)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("cpuu", "did you mean cpu?"), ("cu13", "did you mean cu130?"), ("rocm", "choose one of them.")],
)
def test_unknown_profile_names_the_nearest(name: str, suggestion: str) -> None:
    with pytest.raises(UserError, match="there is no profile") as refusal:
        PINS.profile(name)
    assert str(refusal.value).endswith(suggestion)
    assert "cpu, cpu-hf4, cu130, cu124, cu124-hf4" in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[base]\n",
            "[base\n",
            "can't be read (Expected ']' at the end of a table declaration (at line 5, column 6)):",
        ),
        ("[packages]\n", "[pakages]\n", "[pakages] is unknown (did you mean packages?) in"),
        ("[base]\n", "base = 1\n[base_of_old]\n", "[base_of_old] is unknown (known are base, build, packages, "),
        ('mpi4py = "4.1.2"\n', "", "mpi4py of [packages] is missing in"),
        ('uvicorn = "', 'uvicorn = 0.54 # "', "uvicorn of [packages] is not a text in quotes in"),
        (CUDA_TORCH, "torch = 2.5", "torch of [profiles.cu130] is not a text in quotes in"),
        (
            CUDA_TORCH,
            CUDA_TORCH.replace("torch", "torhc"),
            "torhc of [profiles.cu130] is unknown (did you mean torch?) in",
        ),
        ("train = 410", 'train = "410"', "train of [profiles.cpu.budget] is not a whole number in"),
        ("train = 410", "train = true", "train of [profiles.cpu.budget] is not a whole number in"),
        ("[profiles.cpu.budget]\n", "[profiles.cpu.budgets]\n", "budgets of [profiles.cpu] is unknown (did you mean b"),
        ("[profiles.cpu]\n", "[profiles]\nrocm = 'none'\n[profiles.cpu]\n", "rocm of [profiles] is not a table in"),
        (
            'cuda-compat = "none" ',
            'cuda_compat = "none" ',
            "cuda_compat of [profiles.cu130] is unknown (did you mean c",
        ),
        ('\nsha256 = "unpinned"', "\nsha256 = 12", 'sha256 of [files."smddp-2.6.0"] is not a text in quotes in'),
        ('serve = ["sagemaker-inference"]', "serve = [1]", "serve of [source_only] is not a list of texts in"),
        (
            '"sagemaker-inference"]',
            '"sagemaker-inferenz"]',
            "names sagemaker-inferenz, which is missing in [packages]: give",
        ),
        (
            '[files."smddp-2.6.0"]',
            '[files."smdpp-2.6.0"]',
            "has an unknown part: call it PART-VERSION, with one",
        ),
        (
            'triton = "3.7.1"\n',
            "",
            "[profiles.cu130] has cuda, cudnn, nccl but not triton: pin the",
        ),
        (
            CPU_TORCH,
            f'{CPU_TORCH}\nnccl = "2"',
            "[profiles.cpu] has nccl but not",
        ),
    ],
)
def test_error_in_pins_toml_names_table_and_key(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = pins.PATH.read_text()
    assert old in text
    with pytest.raises(UserError) as refusal:
        load_text(tmp_path, text.replace(old, new, 1))
    assert message in str(refusal.value)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {
                'mpi4py = "4.1.2"\n': "",
                "train = 410": 'train = "410"',
                "[base]\n": '[base]\nimaeg = "x"\n',
            },
            "imaeg of [base] is unknown (did you mean image?) in pins.toml.\nmpi4py of [packages] is missing in "
            "pins.toml.\ntrain of [profiles.cpu.budget] is not a whole number in pins.toml. Fix ",
            id="types",
        ),
        pytest.param(
            {
                'triton = "3.7.1"': 'triton = "none"',
                'efa = "1.47.0"': 'efa = "1.48.0"',
                'triton = "3.1.0"\n': "",
            },
            '[profiles.cu130] has efa 1.48.0, but there is no [files."efa-1.48.0"]: add its url and sha256, or write '
            'efa = "none".\n[profiles.cu130] has cuda, cudnn, nccl but not triton: pin the versions that its '
            "torch requires, or none of them.\n[profiles.cu124] has cuda, cudnn, nccl but "
            "not triton: pin the versions that its torch requires, or none of them. Fix ",
            id="values",
        ),
    ],
)
def test_errors_in_pins_toml_are_reported_together(changes: dict[str, str], sentence: str, tmp_path: Path) -> None:
    text = pins.PATH.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(UserError) as refusal:
        load_text(tmp_path, text)
    assert str(refusal.value) == f"{sentence}{tmp_path}/pins.toml, or restore it from the repository."


def test_profile_names_are_read_without_validation(tmp_path: Path) -> None:
    assert pins.profile_names() == tuple(PINS.profiles)
    path = tmp_path / "pins.toml"
    path.write_text("[profiles.own]\ntorch = 1\n")
    assert pins.profile_names(path) == ("own",)
    path.write_text("[profiles")
    assert pins.profile_names(path) == ()
    assert pins.profile_names(tmp_path / "none.toml") == ()


def test_profile_may_set_cuda_to_none(tmp_path: Path) -> None:
    text = pins.PATH.read_text().replace("[profiles.cpu]\n", '[profiles.cpu]\ncuda = "none"\n')
    assert load_text(tmp_path, text).profile("cpu") == CPU


def test_instances_are_optional(tmp_path: Path) -> None:
    head, _, tail = pins.PATH.read_text().partition("[profiles.cpu.instances]\n")
    assert not any(load_text(tmp_path, head + tail.partition("\n\n")[2]).profile("cpu").instances.values())
    assert all(profile_pins.instances["train"] for profile_pins in PINS.profiles.values())


def test_missing_pins_toml_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml can't be read \(.*No such file"):
        pins_file.load(tmp_path / "none.toml")


FILE = """
[files."efa-1.0"]
url = "https://host/efa%2B1.0.tar.gz?x=1"
sha256 = "unpinned"
key_url = "https://host/keys/efa.key"
key_fingerprint = "4e90 91bc"
"""


def test_file_is_found_by_part_or_part_and_version(tmp_path: Path) -> None:
    file = PINS.file("smddp")
    assert (file.key, file.part, file.version) == ("smddp-2.6.0", "smddp", "2.6.0")
    assert PINS.file("smddp-2.6.0") == file
    with pytest.raises(UserError, match=r"no file 'gdrcopy': name one of efa-1\.47\.0, smddp-2\.6\.0"):
        PINS.file("gdrcopy")
    all_pins = load_text(tmp_path, pins.PATH.read_text() + FILE)
    with pytest.raises(UserError, match=r"has several files for efa: name one of efa-1\.47\.0, efa-1\.0\."):
        all_pins.file("efa")
    found = all_pins.file("efa-1.0")
    assert (found.name, found.key_file, found.key_fingerprint) == ("efa+1.0.tar.gz", "efa.key", "4E9091BC")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[files."gdrcopy-2.5"]\nsha256 = "unpinned"\n', "has no file name: give it a url, or a file of a mirror"),
        ('[files."gdrcopy-2.5"]\nfile = "x.deb"\nsha256 = "ABC"\n', "is invalid: write its 64 digits"),
        (FILE.replace('key_url = "https://host/keys/efa.key"\n', ""), "needs both key_url and key_fingerprint"),
        ('[files."efa-2.0"]\nurl = "https://host/x"\nsha256 = "unpinned"\n', "needs both key_url and key_fingerprint"),
    ],
    ids=["no-name", "no-hash", "no-key", "unsigned-efa"],
)
def test_incomplete_file_table_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        load_text(tmp_path, pins.PATH.read_text() + text)
    assert message in str(refusal.value)


def test_version_has_one_source() -> None:
    assert pins.version() == tomllib.loads((pins.ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {pins.version()}" in (pins.ROOT / "CHANGELOG.md").read_text()
