"""The commands of build.py that run the images as SageMaker does."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from berth.common.console import is_watched, note, print_json, result, say
from berth.common.engine import connect
from berth.common.errors import Problems, UserError, refuse
from berth.contract.words import few
from berth.images.build.revision import read_revision
from berth.images.local_image import LocalImage, other_build
from berth.images.options import JsonOption, NamedImageOption, ProfileOption, command_group
from berth.images.pins import pins
from berth.images.selection import require_images, select_image
from berth.local import archive, opt_ml
from berth.local.demo import run_demo
from berth.local.gpu_check import measure_gpus
from berth.local.serve.endpoint import EndpointOptions, require_port, require_variables, serve_until_interrupted
from berth.local.serve.int8 import Quantization, find_data, quantize_model
from berth.local.session import engine_errors
from berth.local.train import checks
from berth.local.train.api_limits import model_problems
from berth.local.train.hyperparameter_list import find, type_text, with_launcher_options
from berth.local.train.job import TrainingJob, TrainOutcome, run_training_job
from berth.local.train.job_log import is_reason
from berth.local.train.job_request import (
    complete_job,
    read_hyperparameters,
    read_variables,
)
from berth.local.train.job_screen import run_on_screen
from berth.local.train.own_paths import with_own_paths

_FROM_HUB = "For a model on the hub pass an empty folder as --model, and `-e HF_MODEL_ID={name}`."
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        metavar="NAME[=VALUE]",
        help="NAME=value for the containers, or NAME to pass your shell's value; may be given many times.",
    ),
]

app = command_group()
run_app = command_group("Run an image as SageMaker does, on this machine.")
app.add_typer(run_app, name="run")


@run_app.command("train")
def run_train(
    data: Annotated[
        Path | None,
        typer.Option(help="SQuAD data: a file, or a folder with train/, validation/ or test/. Optional with --code."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model folder or model.tar.gz, as channel model; run_qa starts from it.")
    ] = None,
    hosts: Annotated[int, typer.Option(metavar="N", help="How many hosts, algo-1 to algo-N.")] = 1,
    hyperparameter: Annotated[
        list[str] | None, typer.Option("--hyperparameter", "-p", metavar="NAME=VALUE", help="May be given many times.")
    ] = None,
    code: Annotated[Path | None, typer.Option(help="The folder of your own program.")] = None,
    entry_point: Annotated[
        str | None, typer.Option(metavar="FILE", help="Your program in --code; default: train.py.")
    ] = None,
    environment: EnvironmentOption = None,
    output: Annotated[Path, typer.Option(help="Where model.tar.gz and train.log go.")] = Path("out"),
    checkpoints: Annotated[
        Path | None, typer.Option(help="A folder for checkpoints; a job resumes from those in it.")
    ] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Give the hosts this machine's GPUs.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print every line of the log instead of a live screen.")
    ] = False,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
) -> None:
    """Run a training job on this machine. Each host is a container; the model is written to model.tar.gz."""
    problems = Problems()
    draft = TrainingJob(
        channels={},
        output=output,
        hosts=hosts,
        hyperparameters=read_hyperparameters(hyperparameter or [], problems),
        environment=read_variables(environment or [], problems),
        model=model,
        code=code,
        checkpoints=checkpoints,
        gpus=gpus,
    )
    image_problems = Problems()
    selected = _select("train", profile, image, image_problems)
    job = complete_job(draft, data, entry_point, selected.variables if selected else {}, problems)
    if data is None and job.program is None:
        problems.refuse()  # neither data nor a program: further checks are pointless
    _check_launch(job, selected, problems)
    with problems.noted():
        image_problems.refuse()
    problems.refuse()
    assert selected is not None, "or a problem was noted"
    _say_other_build(selected)
    if data is not None and (unused := opt_ml.files_beside_channels(data)):
        say(f"warning: no host sees {few(unused)} in {data}: only its folders are channels.")
    _report(job, _shown(job, selected.name, plain=plain))


def _report(job: TrainingJob, outcome: TrainOutcome) -> None:
    """Prints where the model is; UserError with the reason of a job that failed."""
    if outcome.exit_code != 0:
        raise UserError(_ending(outcome.exit_code, with_own_paths(outcome.reason, job)), outcome.exit_code)
    if outcome.model_archive is not None:
        result.print(escape(str(outcome.model_archive)))


def _shown(job: TrainingJob, image: str, *, plain: bool) -> TrainOutcome:
    """Runs the job with a live screen on a terminal, unless `plain`; otherwise prints all lines."""
    if is_watched() and not plain:
        return run_on_screen(job, image=image, console=note)
    return run_training_job(job, image=image, log=_print_unless_reason, say=say)


def _select(kit: str, profile: str, image: str | None, problems: Problems) -> LocalImage | None:
    """The image to run; if there is none, adds a problem and returns None."""
    with problems.noted(), engine_errors():
        require_images([kit], profile, image)
        return select_image(connect(), kit, profile, image)
    return None


def _say_other_build(selected: LocalImage) -> None:
    """Warns if the image was built from another commit than this checkout's. A user's own image is not checked."""
    if warning := other_build(selected, str(read_revision(pins.ROOT))):
        say(warning)


def _check_launch(job: TrainingJob, selected: LocalImage | None, problems: Problems) -> None:
    """Notes problems that the job's container would report only after seconds."""
    hyperparameters = job.all_hyperparameters
    with problems.noted():
        checks.check_launch_options(hyperparameters, job.environment)
    if job.program is not None:
        return
    with problems.noted():
        checks.check_data(job.channels, hyperparameters)
    if selected is not None:
        with problems.noted(), engine_errors():
            checks.check_run_qa(selected)
            checks.check_hyperparameters(connect(), selected.id, hyperparameters)


def _ending(code: int, reason: str) -> str:
    """The last line of a job that failed: its reason, and its exit code unless the reason names that already."""
    sentence = reason or "see its log above."
    return sentence if f"exit code {code}" in sentence else f"the job ended with exit code {code}: {sentence}"


@run_app.command("serve")
def run_serve(
    model: Annotated[
        Path,
        typer.Option(
            help="The model.tar.gz of a job, or a folder with config.json, weights and tokenizer, or with "
            "code/inference.py."
        ),
    ],
    port: Annotated[int, typer.Option(metavar="N", help="The port on this machine's loopback.")] = 8080,
    environment: EnvironmentOption = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Give the container this machine's GPUs.")] = False,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
) -> None:
    """Serve a model on 127.0.0.1 until interrupted. After Ctrl-C it has 30 s to finish accepted requests; a second one
    ends it at once.
    """
    problems = Problems()
    variables = read_variables(environment or [], problems)
    with problems.noted():
        require_variables(variables)
    with problems.noted():
        refuse(model_problems(variables))
    with problems.noted():
        require_port(port)
    with problems.noted():
        archive.check_model(model, _FROM_HUB)
    selected = _select("serve", profile, image, problems)
    problems.refuse()
    assert selected is not None, "or a problem was noted"
    _say_other_build(selected)
    options = EndpointOptions(model, selected.name, port=port, environment=variables, gpus=gpus)
    raise typer.Exit(serve_until_interrupted(options, log=_print_line, say=say))


def _print_line(line: str) -> None:
    print(line, flush=True)


def _print_unless_reason(line: str) -> None:
    """Prints a line of a job's log, except for the reason of a failure, which the command prints last."""
    if not is_reason(line):
        _print_line(line)


@app.command("demo")
def show_demo(
    output: Annotated[Path, typer.Option(help="Where the model and the plot go.")] = Path("out"),
    profile: ProfileOption = pins.DEFAULT_PROFILE,
) -> None:
    """Fine-tune on the sample, serve the result, ask it."""
    with engine_errors():
        for image in pins.IMAGES:
            require_images([image], profile)
        client = connect()
        train, serve = (select_image(client, image, profile).name for image in pins.IMAGES)
    raise typer.Exit(run_demo(train, serve, output, result))


@app.command("quantize")
def quantize(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model.tar.gz of a job, or a model folder.")],
    data: Annotated[
        Path,
        typer.Option(help="SQuAD data to calibrate with: a file, or a folder, optionally with train/ and validation/."),
    ],
    validation: Annotated[
        Path | None, typer.Option(help="SQuAD data to measure on; default: data of --data that does not calibrate.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The archive to write; default: int8.tar.gz next to MODEL.")
    ] = None,
    max_f1_loss: Annotated[
        float, typer.Option(metavar="POINTS", help="The F1 that int8 may lose, in percentage points.")
    ] = 0.5,
    few_questions: Annotated[
        bool, typer.Option("--few-questions", help="Accept fewer than 500 questions to measure on.")
    ] = False,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
) -> None:
    """Add an int8 graph for CPUs to a model.

    The loss of accuracy against fp32 is measured.
    """
    calibration, validation_data = find_data(data, validation)
    with engine_errors():
        require_images(["train"], profile, image)
        chosen = select_image(connect(), "train", profile, image)
    _say_other_build(chosen)
    request = Quantization(
        model, calibration, validation_data, output or model.parent / "int8.tar.gz", max_f1_loss, few_questions
    )
    result.print(escape(str(quantize_model(request, chosen.name, log=_print_line, say=say))))


@app.command("hyperparameters")
def show_hyperparameters(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One hyperparameter; without it, all.")] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
) -> None:
    """List run_qa's hyperparameters: name, default, meaning.

    The defaults are those of a job on GPUs with the channels train and validation and a checkpoint folder.
    """
    with engine_errors():
        require_images(["train"], profile, image)
        selected = select_image(connect(), "train", profile, image)
        checks.check_run_qa(selected)
        options = checks.known_hyperparameters(connect(), selected.id)
    if not options or not any(option.meaning for option in options.values()):
        raise UserError(f"{selected.name} is an older build, which does not describe hyperparameters: build it again.")
    listed = with_launcher_options(options) if name is None else [find(name, options)]
    if as_json:
        described = [
            {"name": each.name, "default": each.default, "type": type_text(each), "meaning": each.meaning}
            for each in listed
        ]
        print_json({"image": selected.name, "hyperparameters": described})
    elif name is None:
        table = Table("name", "default", "meaning", box=None, pad_edge=False)
        for each in listed:
            table.add_row(*map(escape, (each.name, each.default, each.meaning)))
        result.print(table, soft_wrap=False)
    else:
        for each in listed:
            result.print(escape(f"{each.name}: {type_text(each)}; default: {each.default or 'none'}\n{each.meaning}"))


@app.command("gpu-check")
def check_gpus(
    profile: ProfileOption = "cu130",
    output: Annotated[Path, typer.Option("--json", help="The file for all results.")] = Path("out/gpu-check.json"),
) -> None:
    """Measure this machine's GPUs in both images. Exit code 0 if no check fails."""
    passed = measure_gpus(profile, output, log=_print_line, say=say)
    raise typer.Exit(0 if passed else 1)
