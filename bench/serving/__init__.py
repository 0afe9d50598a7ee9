"""What bench/serve.py and bench/soak.py are made of.

questions    a seeded list of requests made of SQuAD
load         a client over HTTP: closed and open loops
figures      what a load comes to: rates, percentiles, outcomes
model        what a request asks of a model: tokens and floating-point operations
machine      this machine: its CPU, its cores, its fastest matrix product
container    an inference server in a container: start, memory, end
sides        what is compared: the images of ours, and the peer's
report       Markdown
program      options and first lines of both programs, and their end
"""
