"""The hashed locks of every profile, docker/locks/PROFILE/LAYER.txt.

locks            resolves them with uv and writes them
lock_text        the text of one
lock_check       whether a profile's locks are older than docker/pins.toml
locked_packages  what they hold, over all profiles
uv               where uv is, and how it reports
index_metadata   the releases of a project on this machine's package indexes
"""
