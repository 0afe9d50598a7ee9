"""A client for any registry; it needs no AWS account and no Docker engine.

client      the distribution specification: manifests, tags, blobs and referrers
transport   requests, with retries, redirects and log-in
session     a session of requests that does not send the login to other hosts
trust       the CAs that a registry's certificate is checked with
challenge   log-in: Basic, and Bearer with a token server
upload      the upload of a blob, in parts
addresses   validates and compares hosts
references  parses image names
errors      a registry's error answers, as sentences
manifest    reads, checks and makes manifests
verify      checks a pushed image for SageMaker, and tags it
compress    gzips layers that were pushed uncompressed
referrers   documents that are attached to an image
"""
