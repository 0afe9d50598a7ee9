"""The processes that hold a model, and who gives them work.

`settings` says how they are started; `pool` starts them and takes care of those that die; `dispatcher` decides what is
accepted and which worker gets which batch, with `scheduler` (which windows are a batch) and `speed` (how fast the
workers are). `worker` is one process as the server sees it, with the threads that send to it and hear from it over a
`wire`; `process` is what runs in it, and `messages` what the two sides say to each other.
"""
