"""A picture of a page, by a browser that this machine has."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 60


def find_browser() -> str | None:
    """The path of one that can take pictures without a screen; None if there is none."""
    return next((found for found in map(shutil.which, BROWSERS) if found), None)


def take_screenshot(browser: str, url: str, picture: Path) -> bool:
    """Whether the page is in the file `picture` (PNG), as it looks a few seconds after it was opened."""
    with tempfile.TemporaryDirectory(prefix="berth-browser-") as profile:
        command = [browser, "--headless", f"--user-data-dir={profile}", "--window-size=1100,1000", "--hide-scrollbars"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # which it refuses to make for root
        command += ["--virtual-time-budget=8000", f"--screenshot={picture}", url]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0 and picture.is_file()
