"""The processes that hold a model, and who gives them work.

pool        starts the workers, and replaces those that die
dispatcher  decides what is accepted and which worker gets which batch, by how fast the workers are
scheduler   which windows of all waiting jobs are a batch
worker      one process as the server sees it: its settings, and the threads that send to it and hear from it
process     what runs in the worker
messages    what the two sides say to each other, and how it is sent
"""
