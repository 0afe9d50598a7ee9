"""The program of the inference image: a question-answering server behind /ping and /invocations.

Modules in the order in which a request reaches them:

entry               process 1; reads `settings` with the table in `variables`, opens the port (`sockets`)
server              signals, start and stop; `connection` limits how many clients connect, and for how long
app                 routes; `access_log` logs requests, `metrics` and `figures` count them, `page` is for browsers
invocation          receives a body within `limits` and `admission`, and sends the response (`responses`)
answering           the two ways to answer: our model, or a user's handler
body                bytes to windows, and logits to bytes: `codecs` has the media types (`json_text`,
                    `csv_questions`), `records` a body's records, `near_misses` advice for wrong bodies
questions           checks one record; `question_answering` makes its windows and answers
service             one model and its workers; `models` has one service per model
workers             the processes that hold the model or run a handler (`user_code`)

Also: `errors` (statuses), `log`, `hub` (fetches HF_MODEL_ID), `once` (one worker makes files that all use), `pipeline`
(our model without a server, for handlers), `gpu_check` (a row of the command `gpu-check`).
"""
