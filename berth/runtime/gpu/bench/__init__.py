"""What a machine's GPUs do, measured: `python -P -m berth.runtime.gpu.bench.check`.

check            the checks in their order, a table and a JSON document
collectives, compute      all-reduce; matrix product, training step, torch.compile; berth.serve brings a question
peaks            what chips and links can do at most; pure
machine, record, timing                  versions of what was measured, the form of a result, a clock
"""
