"""The user's code from S3: where the SDK leaves it that gives a Model an entry_point and no source_dir."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from berth.contract.archive import ArchiveError, unpack
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.once import make_once
from berth.serve.user_code.find import S3, SUBMIT_VARIABLE, is_multi_model


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
