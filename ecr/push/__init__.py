"""`build.py push`: images from the engine to repositories. In the order of a push:

options        the command's options, and their problems
preflight      checks a push of one image to one repository; it only reads
many           several images to several repositories: checks all, then pushes in parallel
one            one image to one repository: settings, push, verification, bill of materials
context        engine, output and stop event of one push
engine         the push by Docker's engine, with retries
events         progress of the layers, from the engine's events
engine_errors  what the engine's errors mean, and what to do
"""
