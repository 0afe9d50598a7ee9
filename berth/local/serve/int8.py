"""Adds an int8 graph to an existing model: the training image quantises it and measures the loss of accuracy; nothing
is installed on this machine.

The model is mounted read-only, and the graph is made in the run's scratch folder. The archive of both is only written
if the loss is within its limit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from berth.common.engine import connect
from berth.common.errors import UserError
from berth.contract.splits import SPLITS
from berth.local import archive, opt_ml, results
from berth.local.links import without_links
from berth.local.output_folders import check_writable, make_folder
from berth.local.session import SHM_SIZE, ContainerSpec, RunSession, bind, engine_errors
from berth.qa import files
from berth.qa.faults import DataError

_GRAPH = "openvino"
_MODEL_AT = f"{opt_ml.ROOT}/model"
_OUTPUT_AT = f"{opt_ml.ROOT}/output"
_STOP_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Quantization:
    """What to quantise. model: a folder or model.tar.gz; calibration, validation: SQuAD files or folders; without
    validation the loss is measured on questions of calibration that were not used; output: the archive to write.
    """

    model: Path
    calibration: Path
    validation: Path | None
    output: Path
    max_f1_loss: float = 0.5
    few_questions: bool = False


def find_data(data: Path, validation: Path | None) -> tuple[Path, Path | None]:
    """The paths of the data to calibrate with and to measure on; UserError if one has no data file.

    As in a training job, a folder may have both as channels, in subfolders train and validation.
    """
    channels = opt_ml.find_channels(data)
    calibration = _channel(channels, "train")
    if calibration is None:
        raise UserError(f"{data} has no folder train: pass data to calibrate with.")
    validation_data = validation or _channel(channels, "validation")
    for path in filter(None, (calibration, validation_data)):
        try:
            files.find(path)
        except DataError as error:
            raise UserError(str(error)) from None
    return calibration, validation_data


def quantize_model(
    request: Quantization,
    image: str,
    *,
    log: Callable[[str], None] = print,
    say: Callable[[str], None] = print,
) -> Path:
    """Writes the archive of the model with its fp32 and int8 graphs, owned by the caller; returns its path.

    log: prints the container's lines; say: prints ours. UserError if int8 loses too much, or if the input is invalid.
    """
    if not request.max_f1_loss >= 0:  # nor NaN
        raise UserError(f"--max-f1-loss is {request.max_f1_loss} and must be at least 0.")
    output = check_writable(request.output.parent) / request.output.name
    if output.is_dir():
        raise UserError(
            f"--output {request.output} is a folder: give the archive's name, such as {output}/model.tar.gz."
        )
    with engine_errors():
        client = connect()
        with RunSession(client, image, say=say, stop_grace=_STOP_GRACE) as session:
            folder = archive.model_folder(request.model, session.scratch)
            home = archive.model_home(folder, request.model, tokenizer=True)
            make_folder(output.parent)
            results_folder = session.scratch / "made"
            results_folder.mkdir()
            _run(session, _container(_without_links(request, session.scratch), home, results_folder), log)
            return _pack(home, results_folder, output)


def _without_links(request: Quantization, scratch: Path) -> Quantization:
    """The request with copies of data folders that have links out of them: in a container those would dangle."""
    calibration = without_links(request.calibration, scratch / "calibration")
    validation_data = request.validation and without_links(request.validation, scratch / "validation")
    return replace(request, calibration=calibration, validation=validation_data)


def _channel(channels: Mapping[str, Path], split: str) -> Path | None:
    return next((channels[name] for name in SPLITS[split].channels if name in channels), None)


def _container(request: Quantization, home: Path, results_folder: Path) -> ContainerSpec:
    """The container that quantises the model in `home` into the folder `results_folder`."""
    data = {"calibration": request.calibration, **({"validation": request.validation} if request.validation else {})}
    mounted = opt_ml.channel_mounts(data)
    words = [word for name, target in zip(data, mounted, strict=True) for word in (f"--{name}", target)]
    return ContainerSpec(
        "quantize",
        entrypoint=["python", "-P", "-m", "berth.runtime.engines.quantize"],
        command=[
            _MODEL_AT,
            f"{_OUTPUT_AT}/{_GRAPH}",
            *words,
            f"--max-f1-loss={request.max_f1_loss}",
            *(["--few-questions"] if request.few_questions else []),
        ],
        mounts=[
            bind(_MODEL_AT, home, read_only=True),
            bind(_OUTPUT_AT, results_folder),
            *(bind(target, source, read_only=True) for target, source in mounted.items()),
        ],
        shm_size=SHM_SIZE,
        offline=True,
    )


def _run(session: RunSession, spec: ContainerSpec, log: Callable[[str], None]) -> None:
    """Runs the container to its end; UserError with its error if it failed."""
    code, reason = session.run(spec, lambda line: None if line.startswith("berth: error: ") else log(line))
    session.chown_scratch()
    if code != 0:
        reason = reason or f"the container ended with exit code {code}; see its log above"
        raise UserError(f"{reason.rstrip('.')}.")


def _pack(home: Path, results_folder: Path, output: Path) -> Path:
    """Writes the archive of the model, with the new graph in place of an earlier one."""
    model = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    kept = {name: path.resolve() for name, path in model.items() if not name.startswith(f"{_GRAPH}/")}
    graph = results.read_folder(results_folder, _GRAPH, f"{_OUTPUT_AT}/{_GRAPH}").files
    archive.pack({**kept, **{f"{_GRAPH}/{name}": path for name, path in graph.items()}}, output)
    return output
