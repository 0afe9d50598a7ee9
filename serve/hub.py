"""A model of the hub (HF_MODEL_ID) where /opt/ml/model is empty: fetched once, before the model is looked for.

`python -m berth.serve.hub ID REVISION FOLDER` does it, in a process of its own: the worker that serves the model works
offline, so that a model which names a file that it lacks fails at once.
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
    """Whether the model is to come from the hub: one is named, and there is none in the folder."""
    if not environ.get(ID_VARIABLE, "").strip():
        return False
    return not (model_dir.is_dir() and any(model_dir.iterdir()))


def model_folder(model_dir: Path, environ: Mapping[str, str], scratch: Path, say: Callable[[str], None]) -> Path:
    """`model_dir`, or the folder below `scratch` with the model of the hub in its place, fetched by the first that
    comes; ModelFilesError if it can't be had.
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
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "berth.serve.hub", name, revision, str(folder)],
        env={**environ, **quiet, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        reason = ended.stdout.strip() or f"exit code {ended.returncode}"
        raise ModelFilesError(f"{ID_VARIABLE} is `{name}`, which can't be fetched: {reason}")


def wanted_files(names: Iterable[str]) -> list[str]:
    """Of a repository's files those that a served model consists of: configuration and tokenizer, weights in one form,
    and a graph of ours.
    """
    there = sorted(names)
    top = [name for name in there if "/" not in name]
    weights = next((kind for kind in WEIGHTS if kind in top), "")
    suffix = PurePosixPath(weights.removesuffix(".index.json")).suffix
    stem = weights.partition(".")[0]
    wanted = [name for name in top if PurePosixPath(name).suffix in (".json", ".txt", ".model")]
    wanted += [name for name in top if suffix and name.endswith(suffix) and name.startswith(stem)]
    return wanted + [name for name in there if GRAPH in there and name.startswith("openvino/")]


def main(arguments: list[str]) -> int:
    """Fetch a model; what goes wrong is one sentence on stdout."""
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
        found = HfApi().model_info(name, revision=revision)
        files = wanted_files(file.rfilename for file in found.siblings or [])
        snapshot_download(name, revision=found.sha, local_dir=folder, allow_patterns=files)
    except HFValidationError:
        print("it is no name of the hub, such as owner/model")
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
    except Exception as error:  # of the network and of the disk, each library has its own
        reason = mask_text((str(error).strip().splitlines() or [type(error).__name__])[0])
        print(f"{reason}: give the container a way to the hub, or put the model into model.tar.gz")
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
