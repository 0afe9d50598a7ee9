"""Requests of SDK v2 for endpoints and batch transforms (requests.json, recorded by `make requests`): the settings that
follow from them, who answers, and which variables have no effect.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.serve.configuration.settings import ServerSettings, idle_variables, read_settings
from berth.serve.user_code import environment
from berth.serve.user_code.find import FUNCTIONS, NoHandler, UserCode, find_code
from tests.files import write_files

RECORDED = json.loads(Path(__file__).with_name("requests.json").read_text())["v2"]
TEXTS = {"inference.py": "def predict_fn(data, model): ...\n", "train.py": "print('trains')\n", "train.sh": "python\n"}
OURS, HANDLER = "the image", "inference.py"
SHELL_SCRIPT = "the image; train.sh is not a Python file, and is not run"
TRAINING_PROGRAM = f"the image; train.py has none of {', '.join(FUNCTIONS)}, and is not run"
BATCH = {"batch": True, "seconds": 595}

# For each request: who answers, the settings that differ from the defaults, and the variables without effect.
EXPECTED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "Estimator": (OURS, {}, []),
    "Estimator, entry_point": (OURS, {}, []),
    "HuggingFace": (OURS, {}, []),
    "HuggingFaceModel": (OURS, {}, []),
    "HuggingFaceModel, code": (HANDLER, {}, []),
    "HuggingFaceModel, of the hub": (OURS, {}, []),
    "Model": (OURS, {}, []),
    "Model, SAGEMAKER_MODEL_SERVER_TIMEOUT": (OURS, {"seconds": 30}, []),
    "Model, asynchronous": (OURS, {}, []),
    "Model, entry_point": (HANDLER, {}, []),
    "Model, entry_point and source_dir": (HANDLER, {}, []),
    "Model, network isolation": (HANDLER, {}, []),
    "Model, serverless": (OURS, {}, []),
    "Model, transformer": (OURS, BATCH, []),
    "Model, transformer with all that it takes": (
        OURS,
        BATCH | {"payload": 2**20, "payload_mb": 1},
        [],
    ),
    "Model, variables of other servers": (OURS, {"workers": 2, "seconds": 500}, ["SAGEMAKER_USE_NGINX"]),
    "MultiDataModel": (OURS, {"multi_model": True}, []),
    "PyTorch": (TRAINING_PROGRAM, {}, []),
    "PyTorch, a handler": (HANDLER, {}, []),
    "PyTorch, entry_point .sh": (SHELL_SCRIPT, {}, []),
    "PyTorchModel": (OURS, {}, []),
    "PyTorchModel, code and workers": (HANDLER, {"workers": 2}, []),
    "PyTorchModel, code of before framework_version 1.2": (HANDLER, {}, []),
}


def environment_of(request: dict[str, Any]) -> dict[str, str]:
    """The container's variables: the model's, and those that SageMaker adds. For a batch transform they are those of
    the SDK's local mode (sagemaker.local.entities._LocalTransformJob, read in 2.257.7).
    """
    environ = dict(request.get("Environment", {}))
    if request.get("Mode") == "MultiModel":
        environ["SAGEMAKER_MULTI_MODEL"] = "true"
    if "Transform" in request:
        transform = request["Transform"]
        strategy = {"SingleRecord": "SINGLE_RECORD", "MultiRecord": "MULTI_RECORD"}.get(transform.get("BatchStrategy"))
        added = {
            "SAGEMAKER_BATCH": "True",
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": transform.get("MaxConcurrentTransforms", 1),
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": transform.get("MaxPayloadInMB"),
            "SAGEMAKER_BATCH_STRATEGY": strategy,
        }
        environ |= {name: str(value) for name, value in added.items() if value is not None}
        environ |= transform.get("Environment", {})
    return environ


def write_code(request: dict[str, Any], folder: Path) -> None:
    """Write the files that the request names, as the archive has them."""
    write_files(folder, {name: TEXTS[Path(name).name] for name in request.get("Code", [])})


def test_every_recorded_request_has_an_expectation() -> None:
    assert list(RECORDED) == sorted(EXPECTED)


@pytest.mark.parametrize("case", EXPECTED)
def test_recorded_request_gives_settings_and_code(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = RECORDED[case]
    answering, changed, without_effect = EXPECTED[case]
    model = tmp_path / "ml/model"
    model.mkdir(parents=True)
    environ = environment_of(request) | {"SAGEMAKER_BASE_DIR": str(model.parent)}
    folder = environ.get("SAGEMAKER_SUBMIT_DIRECTORY", "")
    environ["SAGEMAKER_SUBMIT_DIRECTORY"] = folder.replace("/opt/ml", str(model.parent))
    if not folder.startswith("s3://"):
        write_code(request, model)

    settings = read_settings(environ)
    assert settings == ServerSettings(model_dir=model, **changed)
    assert idle_variables(settings, environ) == without_effect
    monkeypatch.setattr(environment, "_download", lambda uri, place: write_code(request, place))
    code = find_code(model, environment.fetch(environ, tmp_path / "scratch"))
    match code:
        case UserCode():
            assert (code.file.name, code.functions) == (answering, {"predict_fn"})
        case NoHandler():
            reason = code.reason.replace(f"{model}/code/", "")
            assert answering == "; ".join(filter(None, (OURS, reason)))
