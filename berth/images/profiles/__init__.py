"""`build.py profile`: lists, adds and removes profiles in docker/pins.toml.

commands      the commands of build.py
listing       shows the profiles
add           adds or removes a profile, completely or not at all
request       checks the options of `profile add`, and makes the tables of docker/pins.toml
complete      lets uv resolve the versions that were not given
unavailable   explains with the package index why uv failed
proof         runs proof_script in an environment made from the locks
"""
