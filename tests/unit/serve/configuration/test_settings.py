"""Settings from environment variables: defaults, invalid values, and variables without effect."""

from pathlib import Path
from typing import Any

import pytest

from berth.contract.launch_options import TRAINING_VARIABLES
from berth.serve.configuration.settings import (
    ServerSettings,
    SettingError,
    check_for_questions,
    execution_parameters,
    idle_variables,
    limits_of,
    read_settings,
)
from berth.serve.configuration.variables import VARIABLES
from berth.serve.limits import MEBIBYTE, for_handler, for_questions
from berth.serve.observing import log
from berth.serve.workers.worker import WorkerSettings, worker_settings

OTHER_SERVERS = [
    {f"{server}_DEFAULT_WORKERS_PER_MODEL": "2", f"{server}_DEFAULT_RESPONSE_TIMEOUT": "500"}
    for server in ("MMS", "TS")
]
OURS = {"SAGEMAKER_MODEL_SERVER_WORKERS": "3", "SAGEMAKER_MODEL_SERVER_TIMEOUT": "9"}


@pytest.mark.parametrize(
    ("environ", "changed"),
    [
        ({}, {}),
        (
            {
                "SAGEMAKER_BIND_TO_PORT": "9000",
                "SAGEMAKER_BASE_DIR": "/elsewhere",
                "SAGEMAKER_MAX_PAYLOAD_IN_MB": "100",
                "BERTH_MAX_REQUEST_TOKENS": "1000000",
                "BERTH_FAILURE_GRACE": "0",
            },
            {
                "port": 9000,
                "model_dir": Path("/elsewhere/model"),
                "payload": 100 * MEBIBYTE,
                "request_tokens": 1_000_000,
                "failure_grace": 0,
                "payload_mb": 100,
            },
        ),
        ({"SAGEMAKER_BATCH": "true"}, {"batch": True, "seconds": 595}),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MODEL_SERVER_TIMEOUT": "9"}, {"batch": True, "seconds": 9}),
        ({"SAGEMAKER_BATCH": ""}, {}),
        ({"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "7"}, {"seconds": 7}),
        (
            {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "2", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "120"},
            {"seconds": 120},
        ),
        *((theirs, {"workers": 2, "seconds": 500}) for theirs in OTHER_SERVERS),
        *((theirs | OURS, {"workers": 3, "seconds": 9}) for theirs in OTHER_SERVERS),
        ({"SAGEMAKER_MULTI_MODEL": ""}, {}),
        ({"SAGEMAKER_MULTI_MODEL": "True"}, {"multi_model": True}),
        ({"SAGEMAKER_MULTI_MODEL": " false "}, {}),
        *(({log.LEVEL_VARIABLE: text}, {}) for text in ("10", "warning", " ERROR")),
    ],
)
def test_settings_are_read_from_variables(environ: dict[str, str], changed: dict[str, Any]) -> None:
    assert read_settings(environ) == ServerSettings(**changed)


@pytest.mark.parametrize(
    ("environ", "workers", "parameters"),
    [
        ({}, 1, (1, "MULTI_RECORD", 6)),
        ({}, 8, (8, "MULTI_RECORD", 6)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "50"}, 8, (2, "MULTI_RECORD", 50)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "500"}, 8, (1, "MULTI_RECORD", 128)),
        ({"BERTH_MAX_REQUEST_TOKENS": "512"}, 8, (8, "MULTI_RECORD", 2)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, 8, (8, "MULTI_RECORD", 0)),
    ],
)
def test_execution_parameters_follow_workers_payload_and_tokens(
    environ: dict[str, str], workers: int, parameters: tuple[int, str, int]
) -> None:
    settings = read_settings(environ)
    found = execution_parameters(settings, workers, for_questions(limits_of(settings)).in_transform)
    assert list(found) == ["MaxConcurrentTransforms", "BatchStrategy", "MaxPayloadInMB"]
    assert tuple(found.values()) == parameters


@pytest.mark.parametrize(
    ("environ", "payload_mb"),
    [({}, 6), ({"BERTH_MAX_REQUEST_TOKENS": "512"}, 6), ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "500"}, 500)],
)
def test_execution_parameters_of_a_handler_follow_the_payload(environ: dict[str, str], payload_mb: int) -> None:
    settings = read_settings(environ)
    most = for_handler(limits_of(settings)).in_transform
    assert execution_parameters(settings, 1, most)["MaxPayloadInMB"] == payload_mb


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "csv", "a media type, such as text/csv"),
        ("BERTH_PRECISION", "fp8", "one of fp32, bf16, fp16, int8"),
        ("BERTH_PAGE", "no", "one of on, off"),
        ("SAGEMAKER_BATCH", "tru", "true or false"),
        ("SAGEMAKER_MULTI_MODEL", "1", "true or false"),
        (log.LEVEL_VARIABLE, "loud", "one of debug, info, warning, error, critical or logging's number"),
        ("SAGEMAKER_BIND_TO_PORT", "http", "a whole number from 1 to 65535"),
        ("SAGEMAKER_BIND_TO_PORT", "70000", "a whole number from 1 to 65535"),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "-1", "a whole number from 0 to 1024"),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "0", "a whole number from 1 to 86400"),
        ("BERTH_MAX_REQUEST_TOKENS", "100", "a whole number from 512 to 100000000"),
        ("BERTH_FAILURE_GRACE", "-1", "a whole number from 0 to 3600"),
        ("SAGEMAKER_MODEL_SERVER_WORKERS", "0", "a whole number from 1 to 256"),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "soon", "a whole number from 1 to 86400"),
        ("MMS_DEFAULT_RESPONSE_TIMEOUT", "-1", "a whole number from 1 to 86400"),
    ],
)
def test_invalid_setting_is_refused(name: str, value: str, needed: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({name: value})
    assert str(caught.value) == f"{name} is `{value}`: it must be {needed}"


def test_all_invalid_settings_are_reported_together() -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"SAGEMAKER_BIND_TO_PORT": "9" * 5000, "BERTH_PAGE": "no", "BERTH_PAEG": "on"})
    assert all(name in str(caught.value) for name in ("SAGEMAKER_BIND_TO_PORT", "BERTH_PAGE is", "BERTH_PAEG"))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("text", "level"), [("10", 10), ("warning", 30), (" ERROR", 40)])
def test_log_level_may_be_a_number_or_a_name(text: str, level: int) -> None:
    assert log.level_of(text) == level


def test_other_task_or_answer_type_is_refused_without_a_handler() -> None:
    """read_settings accepts both, because a worker looks for the handler later."""
    environ = {"HF_TASK": "text-classification", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "image/png"}
    read_settings(environ)
    with pytest.raises(SettingError) as caught:
        check_for_questions(environ)
    assert str(caught.value) == (
        "HF_TASK is `text-classification`: this image answers questions (question-answering); "
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT is `image/png`: this image answers in application/json, "
        "application/jsonlines, text/csv; for anything else add a code/inference.py to the model"
    )
    check_for_questions({"HF_TASK": "question-answering", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "Text/CSV; header=1"})


def test_variables_of_other_servers_and_unused_hub_variables_are_idle(tmp_path: Path) -> None:
    idle = (
        "TS_MAX_REQUEST_SIZE",
        "MMS_MAX_RESPONSE_SIZE",
        "SAGEMAKER_SAFE_PORT_RANGE",
        "MMS_JOB_QUEUE_SIZE",
        "SAGEMAKER_TS_BATCH_SIZE",
    )
    others = {"SAGEMAKER_BIND_TO_PORT": "8080", "PATH": "/bin", "SAGEMAKER_REGION": "eu-west-1", "TS_EMPTY": ""}
    settings = ServerSettings(model_dir=tmp_path)
    assert idle_variables(settings, dict.fromkeys(idle, "1") | others) == sorted(idle)
    hub = {"HF_MODEL_ID": "a/b", "HF_MODEL_REVISION": "main"}
    assert idle_variables(settings, hub) == []
    (tmp_path / "config.json").touch()
    assert idle_variables(settings, hub) == sorted(hub)


def test_misspelt_variable_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"BERTH_PRECISON": "int8"})
    assert str(caught.value) == "the variable BERTH_PRECISON is not known: did you mean BERTH_PRECISION?"
    # BERTH_FAILURE_FILE resembles BERTH_FAILURE_GRACE, but is a variable of the training image.
    assert read_settings(dict.fromkeys(TRAINING_VARIABLES, "mpi") | {"BERTH_COLOUR": "red"}) == ServerSettings()


def test_unknown_berth_variables_are_idle(tmp_path: Path) -> None:
    settings = ServerSettings(model_dir=tmp_path)
    known = [
        "SAGEMAKER_MODEL_DIR",
        "SAGEMAKER_MODEL_SERVER_VMARGS",
        "SAGEMAKER_MODEL_SERVER_WORKERS",
        *TRAINING_VARIABLES,
    ]
    unknown_or_other = ["SAGEMAKER_MODEL_SERVER_WORKER", "BERTH_COLOUR", "BERTH_DISTRIBUTON", "BERTH_PRECISION"]
    assert idle_variables(settings, dict.fromkeys(known + unknown_or_other, "1")) == [
        "BERTH_COLOUR",
        "BERTH_DISTRIBUTON",
    ]


def test_idle_variables_of_a_multi_model_endpoint() -> None:
    environ = {
        "SAGEMAKER_MULTI_MODEL": "true",
        "SAGEMAKER_MODEL_SERVER_WORKERS": "4",
        "TS_DEFAULT_WORKERS_PER_MODEL": "4",
        "BERTH_PAGE": "on",
        "BERTH_FAILURE_GRACE": "5",
        "BERTH_GRAPH_DIR": "/x",
        "BERTH_PRECISION": "fp32",
        "HF_MODEL_ID": "a/b",
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": "7",
    }
    assert idle_variables(read_settings(environ), environ) == [
        "BERTH_FAILURE_GRACE",
        "BERTH_GRAPH_DIR",
        "BERTH_PAGE",
        "HF_MODEL_ID",
        "SAGEMAKER_MODEL_SERVER_WORKERS",
        "TS_DEFAULT_WORKERS_PER_MODEL",
    ]
    single_model = environ | {"SAGEMAKER_MULTI_MODEL": "false"}
    assert idle_variables(read_settings(single_model), single_model) == []


def test_table_of_variables_has_each_name_once() -> None:
    names = [name for variable in VARIABLES for name in variable.names]
    assert len(names) == len(set(names))


def test_workers_share_threads_and_gpus() -> None:
    folder = Path("/opt/ml/model")

    def workers(gpus: int, threads: int, visible: str | None = None, count: int = 0) -> list[WorkerSettings]:
        return worker_settings(folder, count, gpus, threads, visible)

    assert workers(0, 16) == [WorkerSettings(folder, 16, "cpu")]
    assert workers(0, 16, count=3) == [WorkerSettings(folder, 5, "cpu")] * 3
    assert workers(0, 2, count=4) == [WorkerSettings(folder, 1, "cpu")] * 4
    gpu = [WorkerSettings(folder, 4, "cuda", {"CUDA_VISIBLE_DEVICES": name}) for name in ("0", "1")]
    assert workers(2, 8) == gpu
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in workers(2, 8, "5,GPU-a", 3)] == [
        "5",
        "GPU-a",
        "5",
    ]
