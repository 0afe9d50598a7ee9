"""What the programs of bench/ that measure an inference image are made of.

questions    a seeded list of requests made of SQuAD
former_pipeline  the pipeline that transformers 5.3 removed, for bench/pipeline.py
load         a client over HTTP: closed and open loops
request      one request on a connection of its own
figures      what a load comes to: rates, percentiles, outcomes
model        what a request asks of a model: tokens and floating-point operations
container    an inference server in a container: start, memory, end
sides        what is compared: the images of ours, and the peer's
report       Markdown
our_image    options of ours, its variants, and a warm-up
"""
