"""The packages that a handler's requirements.txt asks for: an environment of their own, laid over the image's.

So the server's own packages stay as they are whatever a model wants, and the image may be read-only.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from berth.contract.archive import ArchiveError, unpack
from berth.runtime import requirements
from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.hints.program import PackageNote
from berth.runtime.requirements import RequirementsError
from berth.serve.once import make_once
from berth.serve.user_code.find import S3, UserCode, is_multi_model
from berth.serve.variables import SUBMIT_VARIABLE

NOTE = "replaced.json"
"""In an environment: what its requirements replaced in the image, for the sentence of a failure."""


class NoRoomError(ModelFilesError):
    """There is not enough disk for the packages."""


def interpreter_for(code: UserCode, scratch: Path, say: Callable[[str], None]) -> str:
    """The python to run this handler with: the present one, or of an environment below `scratch` that has what it wants
    and sees the present one's packages behind. Made by the first that comes, in the order of seconds to minutes, and
    found by the others; ModelFilesError if it can't be had, NoRoomError if for lack of disk.
    """
    wanted = code.requirements
    if wanted is None:
        return sys.executable
    asked = wanted.read_bytes() + str(wanted.parent).encode()
    place = scratch / f"packages-{hashlib.sha256(asked).hexdigest()[:16]}"
    python = str(place / "bin/python")

    def install() -> None:
        say(f"installing {wanted}")
        lay_over(place)
        try:
            note = requirements.install(wanted.parent, python, lambda line: say(f"pip: {line}"))
        except RequirementsError as error:
            if os.strerror(errno.ENOSPC) in str(error):  # in pip's own words
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise ModelFilesError(f"{wanted.parent}: {error}") from None
        if note:
            say(f"warning: {note.text}")
            (place / NOTE).write_text(json.dumps([note.text, note.modules]), "utf-8")

    try:
        make_once(place, install)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "give the container more disk, or more memory if that folder is in memory" if full else "let it"
        sentence = f"the container can't write the packages of {code.requirements} into {scratch} ({error.strerror})"
        raise (NoRoomError if full else ModelFilesError)(f"{sentence}: {advice}") from error
    return python


def package_note(environment: Path) -> PackageNote | None:
    """What the requirements of an environment replaced in the image; None if nothing, or if it is the image's own."""
    try:
        text, modules = json.loads((environment / NOTE).read_text("utf-8"))
    except OSError:
        return None
    return PackageNote(text, tuple(modules))


def lay_over(place: Path) -> None:
    """An empty environment that sees this one's packages, those in links (.pth) as well, behind its own."""
    venv.create(place, clear=True, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    below = sysconfig.get_path("purelib")
    (packages / "image.pth").write_text(f"import site; site.addsitedir({below!r})\n", "utf-8")


def fetch(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """`environ` with a folder below `scratch` in place of an s3:// address, whose archive is unpacked there, once;
    ModelFilesError if it can't be had.
    """
    uri = environ.get(SUBMIT_VARIABLE, "").strip()
    if not uri.startswith(S3) or is_multi_model(environ):
        return dict(environ)
    folder = scratch / f"fetched-{hashlib.sha256(uri.encode()).hexdigest()[:16]}"
    make_once(folder, lambda: _download(uri, folder))
    return {**environ, SUBMIT_VARIABLE: str(folder)}


def _download(uri: str, folder: Path) -> None:
    import boto3  # half a second
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = uri.removeprefix(S3).partition("/")
    archive = folder.with_suffix(".tar.gz")
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed while it unpacked
        region = (
            os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("SAGEMAKER_REGION")
        )
        boto3.client("s3", region_name=region).download_file(bucket, key, str(archive))
        unpack(archive, folder)
    except (Boto3Error, BotoCoreError, ClientError, ArchiveError, OSError) as error:
        raise ModelFilesError(
            f"{SUBMIT_VARIABLE} is `{uri}`, which can't be fetched ({error}): let the model's role read it, or pack "
            "the code into model.tar.gz as code/inference.py"
        ) from error
    finally:
        archive.unlink(missing_ok=True)
