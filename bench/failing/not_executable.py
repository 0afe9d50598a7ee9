"""Runs a tool that came without its mode bit, as out of a zip file."""

import subprocess

open("tool", "w").write("#!/bin/sh\n")
subprocess.run(["./tool"], check=True)
