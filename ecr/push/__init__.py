"""`build.py push`: images from the engine into repositories. In the order of a push:

options        what the user asked for, and what is wrong with it
preflight      what a push of one image to one repository would meet: it only reads
many           several images to several repositories: checked first, then pushed side by side
one            one image to one repository: settings, engine's push, verification, bill of materials
context        what these hand down to the engine's push
engine         the push of Docker's engine, tried again where that helps
events         what the engine says meanwhile
engine_errors  what its complaints mean, and what helps
"""
