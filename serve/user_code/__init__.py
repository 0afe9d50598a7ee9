"""A user's own inference.py, in the worker processes.

find          which file of which folder it is, whether it is a handler at all, and which files have no effect
environment   code from S3, and the packages of requirements.txt in an environment laid over the image's
context       what its functions may ask about a request, and say about the answer
functions     how its functions are called, one after the other, with the model between them
defaults      what stands in for the functions that it does not have
handler       a request in, an answer or a sentence out, with the place in the user's code and what helps
shims         what handlers import of another toolkit
"""
