"""A user's own inference.py, run by SageMaker's toolkit in the worker processes.

find          which file of which folder it is, and whether it is a handler at all
fetch         it from S3, where the SDK has left it there
environment   its requirements.txt, in an environment laid over the image's
context       what its functions may ask about a request, and say about the answer
defaults      what stands in for the functions that it does not have
handler       the toolkit's Transformer with all of these: a request in, an answer or a sentence out
"""
