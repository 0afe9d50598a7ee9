"""Answers of the question-answering pipeline of transformers 4.57, which 5.3 removed; runs in another environment.

`python former_pipeline.py MODEL < cases > answers`: both are JSON lines. A case is `[question, context, parameters]`;
an answer is what the pipeline returns. Imports nothing of berth.
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
