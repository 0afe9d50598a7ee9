"""A multi-model endpoint: SageMaker loads and unloads its models.

arguments  parses requests: a model by name and folder, or a page of the list
folder     which folders models may be loaded from, how much memory they need, and where their workers write
registry   the models by name: loaded, invoked, unloaded
"""
