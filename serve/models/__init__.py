"""The models that the server serves.

service    one model and its workers
answering  the two ways to answer: our model, or a user's handler
registry   the models of a multi-model endpoint by name: loaded, invoked, unloaded
arguments  parses its requests: a model by name and folder, or a page of the list
folder     which folders models may be loaded from, how much memory they need, and where their workers write
"""
