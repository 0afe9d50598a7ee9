"""What a machine's GPUs do, measured: `python -P -m berth.runtime.gpu.bench.check`.

check            the checks in their order, a table and a JSON document
isolate          each in a process of its own, with a limit
collectives, compute, inference_check    all-reduce; matrix product, training step, torch.compile; a question
peaks            what chips and links can do at most; pure
machine, record, timing                  versions of what was measured, the form of a result, a clock
"""
