"""Runs a tool that is not executable, for example because it was unzipped."""

import subprocess

open("tool", "w").write("#!/bin/sh\n")
subprocess.run(["./tool"], check=True)
