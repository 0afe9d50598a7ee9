"""What runs in the inference image: a question-answering server behind /ping and /invocations.

In reading order, which is also a request's way: `entry` (process 1) → `server` (port, signals) → `app` (routes) →
`content` (types in and out) → `request` (what was asked) → `service` (the one thread that owns the model) → `handler`
(the four functions of a SageMaker handler) → `engines` (windows in, logits out). Beside them: `models` finds the
model's files, `hardware` counts the CPUs this container may use, `errors` holds the one table of statuses, `log` the
shape of a log line.
"""
