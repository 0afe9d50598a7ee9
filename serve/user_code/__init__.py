"""A user's handler (inference.py), in the worker processes.

find          finds its file, and decides whether it is a handler
environment   code from S3, and the packages of requirements.txt in an environment on top of the image's
context       the object `context`: its functions read the request from it, and set status and headers of the answer
functions     imports it and calls its functions
defaults      the default for each function that it does not define
handler       answers a request; an error is one sentence with the place in the user's code and advice
shims         modules of another toolkit that handlers import
"""
