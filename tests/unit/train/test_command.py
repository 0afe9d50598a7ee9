"""The console script `train` keeps signals that come before the entry has installed its handlers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

SIGNAL_DURING_IMPORT = """
import importlib.abc, os, signal, sys
class Stopping(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "berth.train.entry":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Stopping())
from berth.train.command import main
sys.exit(main())
"""


def test_sigterm_while_the_entry_is_imported_is_not_lost(tmp_path: Path) -> None:
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    (config / "resourceconfig.json").write_text(json.dumps({"hosts": ["algo-1"], "current_host": "algo-1"}))
    result = subprocess.run(
        [sys.executable, "-P", "-c", SIGNAL_DURING_IMPORT],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 128 + signal.SIGTERM, result.stderr
    assert (tmp_path / "output" / "failure").read_text().splitlines()[0] == (
        "the job was stopped by a signal (SIGTERM) before training began; start it again."
    )


def test_other_commands_run_without_blocked_signals() -> None:
    command = ["sh", "-c", "kill -TERM $$; echo 'the signal was blocked'"]
    run = f"import sys; sys.argv[1:] = {command!r}; from berth.train.command import main; main()"
    result = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "")
