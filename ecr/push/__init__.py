"""`build.py push`: images from the engine into repositories.

many           several images to several repositories: looked at first, tested, then released side by side
one            one image to one repository: repository, engine's push, check, bill of materials
engine         the push of Docker's engine, tried again where that helps
events         what the engine says meanwhile
engine_errors  what its complaints mean, and what helps
"""
