"""A user's own inference.py, in the worker processes.

find          which file of which folder it is, and whether it is a handler at all
unused        files of the model that were meant to run or to be installed, and are not
fetch         it from S3, where the SDK has left it there
environment   its requirements.txt, in an environment laid over the image's
context       what its functions may ask about a request, and say about the answer
calls         how a function is called, by its parameters
functions     the file's functions, one after the other, with the model between them
defaults      what stands in for the functions that it does not have
handler       a request in, an answer or a sentence out
shims         what handlers import of another toolkit
progress      lines in the log while the model is loaded
failures      the sentence, with the place in the user's code and what helps
"""
