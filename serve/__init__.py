"""What runs in the inference image: a question-answering server behind /ping and /invocations.

In reading order, which is also a request's way: `entry` (process 1) → `server` (port, signals) → `connection`
(deadlines, framing) → `app` (routes) → `reader` (bytes to windows: `content` has the types in and out, `request` the
checked questions) → `request_queue` → `service` (the one thread that owns the model) → `handler` (the four functions of
a SageMaker handler) → `engines` (windows in, logits out). Next to them: `limits` says how much one request may ask,
`admission` holds what all together have, `models` finds the model's files, `errors` has the one table of statuses,
`log` sends log lines to stderr, `gpu_check` is what `gpu-check` measures of all this.
"""
