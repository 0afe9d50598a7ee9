"""`build.py profile`: profiles of the user's own, in docker/pins.toml.

`asked` reads the options of `profile add`. `complete` has uv resolve the other versions; `unavailable` explains with
the package index why uv failed. `proof` runs
`proof_script` in an environment of the locks. `add` does all of it or changes nothing. `listing` shows the profiles,
and `commands` has the commands of build.py.
"""
