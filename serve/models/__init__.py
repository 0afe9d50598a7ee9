"""Many models behind one endpoint, as SageMaker loads and unloads them.

arguments  what a client asks for: a model by name and folder, or a page of the list
states     the states of a model, and what each request may do in each of them
folder     which folder a model may be loaded from, how much memory it needs, and where its worker writes
registry   the models by name: loaded, invoked, unloaded
"""
