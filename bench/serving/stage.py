"""One container of the inference image with a model of files or a folder, for a look at what it answers and logs."""

import http.client
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docker import DockerClient
from docker.models.containers import Container
from docker.types import Mount

from berth.common import owner

Files = Mapping[str, str | bytes]
_STARTS_WITHIN = 90.0  # seconds
_ANSWERS_WITHIN = 30.0  # seconds; longer than any trial's request may take


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, or why there is none: then `status` is 0 and `text` the reason."""

    status: int
    text: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.status}: {self.text.strip()}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running container that answers on port 8080 of its own address."""

    container: Container
    address: str

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request on a connection of its own; `content_type` is the header Content-Type."""
        connection = http.client.HTTPConnection(self.address, 8080, timeout=_ANSWERS_WITHIN)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        began = time.monotonic()
        try:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            return Answer(response.status, text, time.monotonic() - began)
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, f"no answer ({type(error).__name__})", time.monotonic() - began)
        finally:
            connection.close()

    def invoke(self, body: bytes, content_type: str = "application/json", **headers: str) -> Answer:
        """POST /invocations."""
        return self.ask("POST", "/invocations", body, content_type=content_type, **headers)

    def load(self, name: str) -> Answer:
        """Load the model in the folder of that name, on a multi-model endpoint."""
        body = f'{{"model_name": "{name}", "url": "/opt/ml/models/{name}"}}'
        return self.ask("POST", "/models", body.encode(), content_type="application/json")

    def invoke_model(self, name: str, body: bytes, **headers: str) -> Answer:
        """POST /models/NAME/invoke."""
        return self.ask("POST", f"/models/{quote(name)}/invoke", body, content_type="application/json", **headers)

    def log(self) -> str:
        """All that the container has printed."""
        return str(self.container.logs().decode(errors="replace"))

    def line(self, *texts: str) -> str:
        """The log's first line with the first of these texts that it has; empty if it has none."""
        lines = self.log().splitlines()
        return next((line for text in texts for line in lines if text in line), "")

    def exit_code(self) -> int | None:
        """Of a container that has ended or is about to; None if it runs on."""
        time.sleep(1)
        self.container.reload()
        return None if self.container.status == "running" else int(self.container.attrs["State"]["ExitCode"])

    def wait(self) -> bool:
        """Wait until /ping is 200; False if the container ends first, or takes too long."""
        until = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < until:
            if self.ask("GET", "/ping").status == http.client.OK:
                return True
            self.container.reload()
            if self.container.status == "exited":
                return False
            time.sleep(0.1)
        return False


class Stage:
    """Starts containers of one image, whose models are written below a folder."""

    def __init__(self, client: DockerClient, image: str, folder: Path, question_answering: Path) -> None:
        """question_answering: the folder of a model for questions."""
        self._client = client
        self._image = image
        self._folder = folder
        self._number = 0
        self.question_answering = question_answering

    def write(self, files: Files) -> Path:
        """A new folder with these files."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    @contextmanager
    def endpoint(
        self, model: Path | Files, environment: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator[Endpoint]:
        """A container that has been started with this model, on two CPUs and 2 GB by default. `command` in place of
        serve; `at`: where the model is mounted.
        """
        folder = model if isinstance(model, Path) else self.write(model)
        at: str = options.pop("at", "/opt/ml/model")
        command: Sequence[str] = options.pop("command", ["serve"])
        limits = {"nano_cpus": 2_000_000_000, "mem_limit": "2g", "memswap_limit": "2g"}
        name = f"berth-bench-endpoint-{time.time_ns()}"
        container = self._client.containers.run(
            self._image,
            command,
            name=name,
            detach=True,
            labels=owner.this_process().labels(name),
            mounts=[Mount(at, str(folder), type="bind", read_only=True)],
            environment=dict(environment or {}),
            **{**limits, **options},
        )
        try:
            container.reload()
            yield Endpoint(container, str(container.attrs["NetworkSettings"]["IPAddress"]))
        finally:
            container.remove(force=True, v=True)

    @contextmanager
    def ready(
        self, model: Path | Files, environment: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator[Endpoint]:
        """As `endpoint`, once /ping is 200 or the container has ended."""
        with self.endpoint(model, environment, **options) as found:
            found.wait()
            yield found

    def many(self, models: Mapping[str, Path | Files], **options: Any) -> Any:
        """A multi-model endpoint over these models, ready; none of them is loaded."""
        files = {
            f"{name}/{path}": content
            for name, model in models.items()
            for path, content in (read(model) if isinstance(model, Path) else model).items()
        }
        environment = {"SAGEMAKER_MULTI_MODEL": "true", **options.pop("environment", {})}
        return self.ready(files, environment, at="/opt/ml/models", **options)


def read(folder: Path) -> Files:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
