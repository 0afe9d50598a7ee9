"""Installs the packages of a handler's requirements.txt into a separate environment on top of the image's.

So no model can change the server's packages, and the image may be read-only. Also fetches code from S3.
"""

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
from berth.serve.configuration.variables import SUBMIT_VARIABLE
from berth.serve.once import make_once
from berth.serve.user_code.find import S3, UserCode, is_multi_model

NOTE = "replaced.json"
"""File in an environment: the packages of the image that its requirements replaced, for error messages."""


def interpreter_for(code: UserCode, scratch: Path, say: Callable[[str], None]) -> str:
    """The python to run this handler with: this one, or that of an environment below `scratch` with its requirements
    and the image's packages.

    The first worker makes the environment, which takes seconds to minutes; the others wait and use it. ModelFilesError
    if it can't be made.
    """
    requirements_file = code.requirements
    if requirements_file is None:
        return sys.executable
    key = requirements_file.read_bytes() + str(requirements_file.parent).encode()
    place = scratch / f"packages-{hashlib.sha256(key).hexdigest()[:16]}"
    python = str(place / "bin/python")

    def install() -> None:
        say(f"installing {requirements_file}")
        make_environment(place)
        try:
            note = requirements.install(requirements_file.parent, python, lambda line: say(f"pip: {line}"))
        except RequirementsError as error:
            raise ModelFilesError(f"{requirements_file.parent}: {error}") from None
        if note:
            say(f"warning: {note.text}")
            (place / NOTE).write_text(json.dumps([note.text, note.modules]), "utf-8")

    try:
        make_once(place, install)
    except OSError as error:
        sentence = f"the container can't write the packages of {code.requirements} into {scratch} ({error.strerror})"
        raise ModelFilesError(f"{sentence}: make that folder writable, or give it more room") from error
    return python


def package_note(environment: Path) -> PackageNote | None:
    """The packages of the image that an environment's requirements replaced; None if it replaced none."""
    try:
        text, modules = json.loads((environment / NOTE).read_text("utf-8"))
    except OSError:
        return None
    return PackageNote(text, tuple(modules))


def make_environment(place: Path) -> None:
    """Make an empty environment that also finds this one's packages, including its .pth files, after its own."""
    venv.create(place, clear=True, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    image_packages = sysconfig.get_path("purelib")
    (packages / "image.pth").write_text(f"import site; site.addsitedir({image_packages!r})\n", "utf-8")


def fetch(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """`environ` with a local folder in place of an s3:// address: the archive is fetched and unpacked below `scratch`,
    once for all workers. ModelFilesError if it can't be fetched.
    """
    uri = environ.get(SUBMIT_VARIABLE, "").strip()
    if not uri.startswith(S3) or is_multi_model(environ):
        return dict(environ)
    folder = scratch / f"fetched-{hashlib.sha256(uri.encode()).hexdigest()[:16]}"
    make_once(folder, lambda: _download(uri, folder))
    return {**environ, SUBMIT_VARIABLE: str(folder)}


def _download(uri: str, folder: Path) -> None:
    import boto3  # takes half a second
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = uri.removeprefix(S3).partition("/")
    archive = folder.with_suffix(".tar.gz")
    try:
        shutil.rmtree(folder, ignore_errors=True)  # left by a worker that was killed while it unpacked
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
