"""A fake engine whose containers end at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


class EndingEngine:
    """Containers print `printed` and end with `code`. leave: called at each start with the mounts, by their targets."""

    def __init__(self, leave: Callable[[dict[str, Path]], None]) -> None:
        self.leave = leave
        self.code = 0
        self.printed = b""
        self.created: list[dict[str, Any]] = []
        self.client = MagicMock()
        self.client.containers.create.side_effect = self._create
        self.client.containers.list.return_value = []

    def _create(self, image: str, command: list[str], **settings: Any) -> MagicMock:
        self.created.append({"image": image, "command": command, **settings})
        mounts = {mount["Target"]: Path(mount["Source"]) for mount in settings["mounts"]}
        container = MagicMock(status="exited", attrs={"State": {"ExitCode": self.code}})
        container.name = settings["name"]
        container.attach.return_value = iter([self.printed])
        container.start.side_effect = lambda: self.leave(mounts)
        return container
