"""Question answering with our model: everything but the model itself, which is in a worker.

body                 a body's bytes to windows, and logits to the response's bytes
codecs               the media types: JSON and JSON lines here, `csv_questions` has CSV
records              the records of a body
fields               checks one record: its questions and parameters
question_answering   makes a record's windows, and its answers
json_text            reads and writes strict JSON
near_misses          advice for a body that can't be read
"""
