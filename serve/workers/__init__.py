"""The processes that hold a model, and the code that gives them work.

pool        starts the workers, and replaces those that die
dispatcher  decides what is accepted and which worker gets which batch, by how fast the workers are
scheduler   decides which waiting windows make the next batch
worker      one process as the server sees it: its settings, and the threads that send to it and receive from it
process     the program that runs in the worker
messages    the messages between server and worker, and how they are sent
"""
