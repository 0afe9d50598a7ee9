#!/usr/bin/env python3
"""The command line of berth: builds, tests, runs and looks after the training and the inference image.

Arguments in, a call into images/, local/ or ecr/, a result out; nothing else happens here. Results go to stdout,
progress and errors to stderr; a mistake of the user is one sentence and exit code 1.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.markup import escape

    from berth.ecr import commands as registry_commands
    from berth.ecr import image as built_images
    from berth.images import build as building
    from berth.images import clean as cleaning
    from berth.images import doctor as doctoring
    from berth.images import engine, locks, network, pins, plan, sources, testing
    from berth.images import probe as probing
    from berth.images import size as sizing
    from berth.images.bar import progress_bar, showing_bytes
    from berth.images.errors import UserError
    from berth.images.inventory import commands as content_commands
    from berth.images.progress import Progress, Step
    from berth.images.terminal import (
        Image,
        ImageArgument,
        JsonOption,
        ProfileOption,
        Which,
        WhichArgument,
        note,
        result,
        say,
    )
    from berth.local import demo as demonstration
    from berth.local import gpu_check as gpu_checking
    from berth.local import job as local_job
    from berth.local import serving as local_serving
    from berth.local.signals import Interrupted
except ModuleNotFoundError as missing:
    sys.exit(
        f"error: the package {missing.name} is not installed here: run `make setup`, then `.venv/bin/python build.py`."
    )

app = typer.Typer(
    help=__doc__.split("\n")[0],
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
run_app = typer.Typer(help="Run an image as SageMaker does, on this machine.", no_args_is_help=True)
app.add_typer(run_app, name="run")

MirrorOption = Annotated[
    str | None,
    typer.Option(
        envvar="BERTH_MIRROR",
        metavar="FOLDER|URL",
        help="Where files that are no packages (EFA, SMDDP) are, instead of at their own URLs.",
    ),
]


@app.command()
def build(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    base_image: Annotated[
        str | None, typer.Option(help="A Debian or Ubuntu image with Python 3.11 instead of the pinned one.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="efa, smddp, gdrcopy or cuda-compat: built without; may be given many times."
        ),
    ] = None,
    mirror: MirrorOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the docker build lines; build nothing.")] = False,
) -> None:
    """Build images, tagged berth-IMAGE:VERSION-PROFILE-REVISION and berth-IMAGE:PROFILE."""
    row = pins.load().profile(profile).without(without or [])
    for line in dict.fromkeys(line for image in which.images for line in plan.left_out(row, image)):
        say(line)
    with showing_bytes(note) as show:
        plans = [
            building.prepare(image, row, base_image, mirror=mirror, dry_run=dry_run, say=say, show=show)
            for image in which.images
        ]
    if dry_run:
        for planned in plans:
            result.print(escape(planned.command(str(_client_or_docker()))))
        return
    client = engine.find_client()
    for planned in plans:
        built = _build_one(planned, client)
        result.print(f"{built.plan.tags[0]}  {built.image_id}")


def _client_or_docker() -> Path:
    try:
        return engine.find_client()
    except UserError:
        return Path("docker")


def _build_one(planned: plan.BuildPlan, client: Path) -> building.Built:
    """Builds one image; a terminal sees a bar and the running step, a log sees a line when a step ends."""
    say(f"building {planned.tags[0]}")
    with progress_bar(note, transient=True, disable=not note.is_terminal) as bar:
        task = bar.add_task(planned.image, total=plan.step_count(planned.image, pins.ROOT))

        def show(step: Step, progress: Progress) -> None:
            ended = sum(each.ended for each in progress.layers)
            bar.update(task, completed=ended, description=escape(f"{planned.image}: {step.name}"))
            if step.ended and not step.failed:
                took = "cached" if step.cached else f"{step.seconds:.1f} s"
                bar.print(escape(f"  [{ended}/{bar.tasks[0].total:.0f}] {step.name}  {took}"), soft_wrap=True)

        built = building.run(planned, client, show)
    say(f"built {planned.tags[1]} in {built.seconds:.1f} s; the whole log: {built.log}")
    return built


@app.command("test")
def run_tests(which: WhichArgument = Which.all, profile: ProfileOption = pins.DEFAULT_PROFILE) -> None:
    """Run the image tests on built images."""
    for image in which.images:
        built_images.local_image(engine.connect(), image, profile)
    raise typer.Exit(testing.run(which.images, profile))


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
    """Run a training job on this machine, in one container a host, and keep its model.tar.gz."""
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
    """Fine-tune on the embedded sample, serve the result and ask it two questions."""
    raise typer.Exit(demonstration.demo(f"berth-train:{profile}", f"berth-serve:{profile}", output, result))


@app.command()
def size(
    which: WhichArgument = Which.all, profile: ProfileOption = pins.DEFAULT_PROFILE, as_json: JsonOption = False
) -> None:
    """Show where an image's bytes are: by layer, by package, against its budget."""
    budget = pins.load().profile(profile).budget
    client = engine.connect()
    for image in which.images:
        tag = built_images.local_image(client, image, profile).tag
        with note.status(f"{tag}: measuring the layers") as status:
            measured = sizing.image_size(client, tag, budget_mb=budget[image], step=status.update)
        result.print(json.dumps(asdict(measured)) if as_json else sizing.render(measured))


@app.command()
def doctor() -> None:
    """Say what this machine lacks, each with the command that mends it; exit code 0 if the images can be built here."""
    findings = doctoring.findings(probing.probe())
    result.print(doctoring.render(findings))
    raise typer.Exit(0 if doctoring.can_build(findings) else 1)


@app.command("gpu-check")
def gpu_check(
    profile: ProfileOption = "cu130",
    output: Annotated[Path, typer.Option("--json", help="Where everything that was found goes.")] = Path(
        "out/gpu-check.json"
    ),
) -> None:
    """Measure this machine's GPUs in both images, beside what they could do; exit code 0 if no check fails."""
    passed = gpu_checking.gpu_check(profile, output, log=_plain, say=say)
    raise typer.Exit(0 if passed else 1)


for of_registries in (registry_commands.push, registry_commands.promote, registry_commands.uri):
    app.command()(of_registries)
for of_contents in (content_commands.bill, content_commands.licences, content_commands.outdated):
    app.command()(of_contents)
app.command("diff")(content_commands.compare)


@app.command()
def shell(image: ImageArgument = Image.train, profile: ProfileOption = pins.DEFAULT_PROFILE) -> None:
    """Open a shell in an image."""
    engine.become_shell(built_images.local_image(engine.connect(), image.value, profile).tag)


@app.command()
def clean(dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False) -> None:
    """Remove the containers, networks and images that the kit made."""
    items = cleaning.clean(engine.connect(), dry_run=dry_run)
    for item in items:
        result.print(escape(str(item)))
    gone = sum(not item.kept for item in items)
    say(f"{gone} thing(s) {'would go' if dry_run else 'removed'}")


@app.command("pins")
def render_pins(
    profile: Annotated[
        str | None, typer.Option(help="The row of docker/pins.toml to lock again; without it, every one.")
    ] = None,
    no_locks: Annotated[bool, typer.Option("--no-locks", help="Render the Dockerfiles only.")] = False,
    fetch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this: download a file such as smddp-2.6.0 and record its sha256."),
    ] = None,
    mirror: MirrorOption = None,
) -> None:
    """Render docker/pins.toml into the Dockerfiles' defaults and make the hashed locks of every profile again."""
    kit = pins.load()
    rows = list(kit.profiles.values()) if profile is None else [kit.profile(profile)]
    if fetch is not None:
        with showing_bytes(note) as show:
            pinned = sources.fetch_and_pin(kit.file(fetch), pins.PATH, mirror, say, show)
        result.print(f"{pinned.key}  sha256:{pinned.sha256}")
        return
    written = pins.render_dockerfiles(kit)
    if not no_locks:
        folders = [str(folder) for folder in network.gather(os.environ).index.folders]
        written += [path for row in rows for path in locks.write_locks(kit, row, folders)]
    for path in dict.fromkeys(written):
        result.print(escape(str(path.relative_to(pins.ROOT))))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; every error that a user can cause is printed here and nowhere else."""
    command: Callable[..., object] = typer.main.get_command(app)
    try:
        code = command(arguments, standalone_mode=False)
    except UserError as error:
        note.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        return error.exit_code
    except typer.Exit as end:
        if isinstance(end.__cause__, KeyboardInterrupt):  # typer makes an exit of it
            say("interrupted; what was started is gone")
        return int(end.exit_code)
    except Interrupted as stop:
        say("interrupted; what was started is gone")
        return stop.exit_code
    except typer.TyperException as error:
        # Without a command the message is the help itself.
        say(str(error) if str(error).startswith("Usage:") else f"error: {_usage_sentence(error)}")
        return 2
    return int(code) if isinstance(code, int) else 0


def _usage_sentence(error: Exception) -> str:
    """A mistake on the command line as one sentence that names the option and where to read on."""
    command = str(getattr(getattr(error, "ctx", None), "command_path", "build.py"))
    help_of = f"`python {command} --help`"
    said = str(error).removeprefix("Value error, ").rstrip(".")
    said = said.replace(". Did you mean ", " (did you mean ").replace("?", "?)") if said.endswith("?") else said
    parameter = getattr(error, "param", None)
    if parameter is not None:
        # As --help calls it: an argument by its metavar, an option by itself.
        name = parameter.metavar if parameter.param_type_name == "argument" else None
        name = name or parameter.opts[0]
        if said.startswith("Missing parameter"):
            return f"{name} is missing: {help_of} says what it takes."
        return f"{name}: {said}; see {help_of}."
    return f"{said}; {help_of} lists what there is."


if __name__ == "__main__":
    # As an exception, so that what is cleaned up after Ctrl-C is after SIGTERM as well; a run catches it by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
