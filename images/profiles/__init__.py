"""`build.py profile`: profiles of the user's own, in docker/pins.toml.

`asked` is what was asked for, `complete` asks the package index for the rest, as of a `day`, `pins_edit` has the text
of pins.toml with a row more or less, `proof` runs `proof_script` in an environment of the locks, and `add` does it all,
or nothing; `listing` shows what there is. `commands` are those of build.py.
"""
