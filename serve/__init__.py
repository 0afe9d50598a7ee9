"""What runs in the inference image: a question-answering server behind /ping and /invocations.

In reading order, which is also a request's way: `entry` (process 1) → `settings` → `server` (signals) → `connection`
(deadlines, framing) → `app` (routes) → `reader` (bytes to windows: `content` has the types in and out, `request` the
checked questions, `handler` the windows and the answers) → `service` → `workers` (the processes that hold the model).
Next to them: `limits` says how much one request may ask, `admission` holds what all together have, `errors` has the one
table of statuses, `log` sends log lines to stderr, `gpu_check` is what `gpu-check` measures of all this.
"""
