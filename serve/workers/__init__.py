"""The processes that hold a model, and who gives them work.

`settings` says how they are started; `pool` starts them, hands them batches and takes care of those that die;
`scheduler` decides which windows are a batch; `process` is what runs in one of them, and `messages` what the two sides
say to each other.
"""
