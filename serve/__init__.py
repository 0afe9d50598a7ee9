"""What runs in the inference image: a question-answering server behind /ping and /invocations.

In reading order, which is also a request's way: `entry` (process 1) → `settings` (by the table in `variables`) →
`sockets` (the port) → `server` (signals) → `connection` (deadlines, framing) → `app` (routes) → `answering` (who
answers) → `reader` (bytes to windows: `codecs` has the types, `body` its records, `request` the checked questions,
`question_answering` the windows and the answers) → `service` → `workers` (the processes that hold the model, or run a
user's handler: `user_code`).
Next to them: `limits` says how much one request may ask and `body_limits` how large its body may be, which
`content_encoding` unpacks; `admission` holds what all together have, `errors` has the one table of statuses, `figures`
and `metrics` are what the server tells of itself, `page` is for a browser, `log` sends log lines to stderr. `pipeline`
is the whole of it as one call without a server, `gpu_check` is what `gpu-check` measures of that. `models` takes the
place of `service` if there are many, and `hub` fetches a model that is not there; `once` has one worker make what
all need. `app` stands on `invocation` (a request from its body to its response), `responses`, `media_types`,
`json_text`, `access_log` and `openapi`.
`codecs` reads CSV by `csv_text` (rows) and `csv_questions` (their questions) and gives `records`; `near_misses` says
what a wrong body seems to be.
"""
