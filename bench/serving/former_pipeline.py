"""Runs where transformers 4.57 is, not here: the answers of its question-answering pipeline, which 5.3 has no more.

`python former_pipeline.py MODEL < cases > answers`: JSON lines each way, a case `[question, context, parameters]`, an
answer what the pipeline returns. Nothing of ours is imported.
"""

import json
import sys

from transformers import pipeline


def main() -> None:
    answer = pipeline("question-answering", model=sys.argv[1], tokenizer=sys.argv[1], device="cpu")
    for line in sys.stdin:
        question, context, parameters = json.loads(line)
        print(json.dumps(answer(question=question, context=context, **parameters), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
