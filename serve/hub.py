"""Fetches a model from the hub (HF_MODEL_ID) if /opt/ml/model is empty: once, before the workers look for a model.

`python -m berth.serve.hub ID REVISION FOLDER` runs in its own process, because the worker that serves the model is
offline: there a model with a missing file fails at once.
"""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from berth.contract.masking import mask_text
from berth.contract.model_files import WEIGHTS
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.once import make_once

ID_VARIABLE, REVISION_VARIABLE = "HF_MODEL_ID", "HF_MODEL_REVISION"
GRAPH = "openvino/graph.json"


def wants_hub(model_dir: Path, environ: Mapping[str, str]) -> bool:
    """Whether to fetch the model from the hub: HF_MODEL_ID is set, and the folder is empty or missing."""
    if not environ.get(ID_VARIABLE, "").strip():
        return False
    return not (model_dir.is_dir() and any(model_dir.iterdir()))


def model_folder(model_dir: Path, environ: Mapping[str, str], scratch: Path, say: Callable[[str], None]) -> Path:
    """`model_dir`, or a folder below `scratch` with the hub's model. The first worker fetches it, the others wait.

    ModelFilesError if it can't be fetched.
    """
    if not wants_hub(model_dir, environ):
        return model_dir
    name, revision = environ[ID_VARIABLE].strip(), environ.get(REVISION_VARIABLE, "").strip() or "main"
    folder = scratch / f"hub-{hashlib.sha256(f'{name}@{revision}'.encode()).hexdigest()[:16]}"

    def fetch() -> None:
        say(f"fetching the model {name}, revision {revision}, from the hub")
        _fetch(name, revision, folder, environ)

    make_once(folder, fetch)
    return folder


def _fetch(name: str, revision: str, folder: Path, environ: Mapping[str, str]) -> None:
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    own = {"HF_HUB_OFFLINE": "0", "HF_HOME": environ.get("HF_HOME") or str(folder.with_suffix(".home"))}
    result = subprocess.run(
        [sys.executable, "-P", "-m", "berth.serve.hub", name, revision, str(folder)],
        env={**environ, **quiet, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        reason = result.stdout.strip() or f"exit code {result.returncode}"
        raise ModelFilesError(f"{ID_VARIABLE} is `{name}`, which can't be fetched: {reason}")


def wanted_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that a served model needs: configuration, tokenizer, weights in one format, and our
    graph if the repository has one.
    """
    files = sorted(names)
    top = [name for name in files if "/" not in name]
    weights = next((kind for kind in WEIGHTS if kind in top), "")
    suffix = PurePosixPath(weights.removesuffix(".index.json")).suffix
    stem = weights.partition(".")[0]
    wanted = [name for name in top if PurePosixPath(name).suffix in (".json", ".txt", ".model")]
    wanted += [name for name in top if suffix and name.endswith(suffix) and name.startswith(stem)]
    return wanted + [name for name in files if GRAPH in files and name.startswith("openvino/")]


def main(arguments: list[str]) -> int:
    """Fetch a model; an error is one sentence on stdout and exit code 1."""
    name, revision, folder = arguments
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        info = HfApi().model_info(name, revision=revision)
        files = wanted_files(file.rfilename for file in info.siblings or [])
        snapshot_download(name, revision=info.sha, local_dir=folder, allow_patterns=files)
    except HFValidationError:
        print("it is not a valid hub name, such as owner/model")
    except GatedRepoError:
        print("it is gated: accept its terms, and give HF_TOKEN the token of that account")
    except RevisionNotFoundError:
        print(f"it has no revision {revision}: set {REVISION_VARIABLE} to a branch, a tag or a commit")
    except RepositoryNotFoundError:
        print("there is no such model, or it is private: check the name, or set HF_TOKEN")
    except HfHubHTTPError as error:
        print(
            mask_text(f"the hub answered {error.response.status_code}: try again, or put the model into model.tar.gz")
        )
    except Exception as error:  # each library has its own errors of network and disk
        reason = mask_text((str(error).strip().splitlines() or [type(error).__name__])[0])
        print(f"{reason}: give the container a way to the hub, or put the model into model.tar.gz")
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
