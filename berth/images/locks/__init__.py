"""The hashed locks of every profile, docker/locks/PROFILE/LAYER.txt.

locks            resolves locks with uv and writes them
lock_text        reads and writes the text of a lock
lock_check       whether a profile's locks match docker/pins.toml
locked_packages  the packages in the locks of all profiles
uv               finds and runs uv, and explains its failures
index_metadata   the releases of a project on this machine's package indexes
"""
