"""A container build kit for Amazon SageMaker: two images, and the commands that build, test, run and publish them.

contract    what your machine and both images agree on: hyperparameters, variables, files
qa          extractive question answering: data, windows over a context, spans, EM and F1
runtime     what both images run on: CPUs, memory, GPUs, engines, hints
images      how an image comes about on your machine
local       a SageMaker on your machine
common      what these two and ecr share
train, serve, ecr, smdistributed   links to folders at the top level
"""
