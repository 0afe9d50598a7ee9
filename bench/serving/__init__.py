"""Modules of the programs that measure an inference image.

questions    a reproducible list of requests from SQuAD
former_pipeline  answers of the pipeline that transformers 5.3 removed, for bench/pipeline.py
load         an HTTP client: closed and open loops
request      one request on a new connection
figures      figures of a load: rates, percentiles, outcomes
container    an inference server in a container: start, measure, stop
sides        the compared images: ours and the peer's
report       the results as Markdown
costly_bodies    expensive request bodies, for bench/cost.py
peak_memory      the most memory that a container has used
our_image    options of our image, its variants, and the warm-up
"""
