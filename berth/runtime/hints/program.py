"""The input of a hint: the exception that ended a program, and how the program was started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception as Python prints it.

    kind: its type with the module, as in a traceback (`KeyError`, `torch.OutOfMemoryError`). message: its text. files:
    the file of each frame, the innermost last.
    """

    kind: str
    message: str
    files: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.kind.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class PackageNote:
    """A text on packages that a requirements.txt replaced, and the modules whose failures it explains."""

    text: str
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """How the failed program was started.

    code_dir: the user's source folder. command: the program's command line. environ: the program's environment.
    package_note: what its requirements.txt replaced in the image. serving: whether it is a handler in the inference
    image, which has a model and requests instead of a job.
    """

    code_dir: Path
    command: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    package_note: PackageNote | None = None
    serving: bool = False

    @property
    def image(self) -> str:
        """The name of this image for `build.py build`."""
        return "serve" if self.serving else "train"

    @property
    def owner(self) -> str:
        """Whose variables the program reads: endpoint or job."""
        return "endpoint" if self.serving else "job"

    @property
    def channels(self) -> dict[str, Path]:
        """Channel of the job → its folder."""
        prefix = "SM_CHANNEL_"
        variables = sorted(self.environ.items())
        return {name.removeprefix(prefix).lower(): Path(value) for name, value in variables if name.startswith(prefix)}

    def is_own(self, file: str) -> bool:
        """Whether a frame's file is the user's own.

        A relative name is the program's, under mpi4py's runner, or that of a Cython source, such as pyarrow/error.pxi.
        """
        relative = file[:1] not in ("/", "<") and not file.endswith((".pyx", ".pxi", ".pxd"))
        return relative or file.startswith(f"{self.code_dir}/")
