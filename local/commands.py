"""The commands of build.py that run the images as SageMaker does. Arguments in, a result out."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from berth.images import pins
from berth.images.errors import UserError
from berth.images.terminal import ProfileOption, commands, result, say
from berth.local import demo as demonstration
from berth.local import gpu_check as gpu_checking
from berth.local import job as local_job
from berth.local import serving as local_serving

app = commands()
run_app = commands("Run an image as SageMaker does, on this machine.")
app.add_typer(run_app, name="run")


@run_app.command("train")
def run_train(
    data: Annotated[
        Path, typer.Option(help="SQuAD data: a file, or a folder with train/, validation/ or test/ inside.")
    ],
    model: Annotated[Path | None, typer.Option(help="A model folder or model.tar.gz to start from.")] = None,
    hosts: Annotated[int, typer.Option(help="How many hosts, algo-1 to algo-N.")] = 1,
    hyperparameter: Annotated[
        list[str] | None, typer.Option("--hyperparameter", "-p", help="name=value; may be given many times.")
    ] = None,
    code: Annotated[Path | None, typer.Option(help="The folder of your own program.")] = None,
    entry_point: Annotated[str | None, typer.Option(help="Your program in --code, such as train.py.")] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--env", "-e", help="NAME=value for the containers; may be given many times.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where model.tar.gz goes.")] = Path("out"),
    checkpoints: Annotated[
        Path | None, typer.Option(help="A folder for checkpoints; a job goes on from those that are in it.")
    ] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Give the hosts this machine's GPUs.")] = False,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
) -> None:
    """Run a training job on this machine. Each host is a container; the model comes as model.tar.gz."""
    hyperparameters = _pairs(hyperparameter or [], "--hyperparameter")
    if (code is None) != (entry_point is None):
        raise UserError("--code and --entry-point go together: give the folder and the program in it.")
    if code is not None and entry_point is not None:
        if not (code / entry_point).is_file():
            raise UserError(f"{entry_point} is not in {code}: give --entry-point the name of a program there.")
        hyperparameters |= {
            "sagemaker_program": json.dumps(entry_point),
            "sagemaker_submit_directory": json.dumps("/opt/ml/code"),
        }
    if model is None and code is None and "model_name_or_path" not in hyperparameters and not (data / "model").exists():
        raise UserError(
            "there is no model to start from: pass --model FOLDER, or -p model_name_or_path=NAME where the hub answers."
        )
    done = local_job.run_train(
        data,
        image=f"berth-train:{profile}",
        output=output,
        model=model,
        hosts=hosts,
        hyperparameters=hyperparameters,
        environment=_pairs(environment or [], "--env"),
        code=code,
        checkpoints=checkpoints,
        gpus=gpus,
        log=_plain,
        say=say,
    )
    if done.exit_code != 0:
        first = next((text.splitlines()[0] for text in done.failures.values() if text.strip()), "see its log above.")
        raise UserError(f"the job ended with exit code {done.exit_code}: {first}", done.exit_code)
    if done.model_archive is not None:
        result.print(escape(str(done.model_archive)))


@run_app.command("serve")
def run_serve(
    model: Annotated[Path, typer.Option(help="The model.tar.gz of a job, or a model folder.")],
    port: Annotated[int, typer.Option(help="The port on this machine's loopback.")] = 8080,
    gpus: Annotated[bool, typer.Option("--gpus", help="Give the container this machine's GPUs.")] = False,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
) -> None:
    """Serve a model on 127.0.0.1 until interrupted."""
    code = local_serving.run_serve(model, image=f"berth-serve:{profile}", port=port, gpus=gpus, log=_plain, say=say)
    raise typer.Exit(code)


def _pairs(words: list[str], option: str) -> dict[str, str]:
    wrong = [word for word in words if "=" not in word or word.startswith("=")]
    if wrong:
        raise UserError(f"{option} {wrong[0]!r} is no pair: write name=value.")
    return dict(word.split("=", 1) for word in words)


def _plain(line: str) -> None:
    print(line, flush=True)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Where the model and the plot go.")] = Path("out"),
    profile: ProfileOption = pins.DEFAULT_PROFILE,
) -> None:
    """Fine-tune on the embedded sample, serve the result, ask it."""
    raise typer.Exit(demonstration.demo(f"berth-train:{profile}", f"berth-serve:{profile}", output, result))


@app.command("gpu-check")
def gpu_check(
    profile: ProfileOption = "cu130",
    output: Annotated[Path, typer.Option("--json", help="Where everything that was found goes.")] = Path(
        "out/gpu-check.json"
    ),
) -> None:
    """Measure this machine's GPUs in both images. Exit code 0 if no check fails."""
    passed = gpu_checking.gpu_check(profile, output, log=_plain, say=say)
    raise typer.Exit(0 if passed else 1)
