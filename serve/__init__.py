"""What runs in the inference image: a question-answering server behind /ping and /invocations.

In the order in which a request passes them:

entry               process 1; `settings` by the table in `variables`, the port and open files by `sockets`
server              signals, start and stop; `connection` limits how long and how many clients connect
app                 routes; `access_log` logs requests, `metrics` and `figures` count them, `page` is for a browser
invocation          receives a body within `limits` and `admission`, and sends the response (`responses`)
answering           who answers: our model, or a handler
body                bytes to windows and logits to bytes: `codecs` has the content types (`json_text`,
                    `csv_questions`), `records` what they give, `near_misses` advice for wrong bodies
questions           checks one record; `question_answering` makes its windows and its answers
service             one model and its workers; `models` has many services
workers             the processes that hold the model, or run a handler (`user_code`)

Besides: `errors` (statuses), `log`, `hub` (fetches HF_MODEL_ID), `once` (one worker makes what all use), `pipeline`
(our model without a server, for handlers), `gpu_check` (for `gpu-check`).
"""
