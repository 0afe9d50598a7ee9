"""Many models behind one endpoint, as SageMaker loads and unloads them.

request    what a client asks for: a model by name and folder, or a page of the list
states     the states of a model, and what each request may do in each of them
folder     which folder a model may be loaded from
memory     how much memory a model needs, and holds
scratch    what a model's worker writes, in a folder of its own, and the variables that send it there
registry   the models by name: loaded, invoked, unloaded
"""
