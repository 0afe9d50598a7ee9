"""Questions and parameters in a JSON value, and the error for each fault."""

import pytest

from berth.serve.errors import ServeError
from berth.serve.questions.fields import CheckedQuestions, Parameters, Question, parse

ONE = {"question": "Who?", "context": "Philipp."}


@pytest.mark.parametrize(("inputs", "single"), [(ONE, True), ([ONE], False)])
def test_parse_one_question(inputs: object, single: bool) -> None:
    expected = CheckedQuestions((Question("Who?", "Philipp."),), single=single, parameters=Parameters())
    assert parse({"inputs": inputs}) == expected


def test_parse_parameters() -> None:
    values = {
        "top_k": 3,
        "doc_stride": 0,
        "max_answer_len": 30,
        "max_seq_len": 256,
        "max_question_len": 32,
        "handle_impossible_answer": True,
        "align_to_words": False,
    }
    assert parse({"inputs": ONE, "parameters": values}).parameters == Parameters(**values)
    assert parse({"inputs": ONE, "parameters": {"topk": 3}}).parameters == Parameters(top_k=3)
    assert parse({"inputs": ONE, "parameters": None}).parameters == Parameters()


def with_parameters(**parameters: object) -> object:
    return {"inputs": ONE, "parameters": parameters}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (7, "the body is a number: it must be an object with `inputs` and `parameters`"),
        (
            [ONE],
            'the body is a list: send {"inputs": […]} with the list, or each of its elements as a line of JSON lines',
        ),
        ({}, '`inputs` is missing: send {"inputs": {"question": "…", "context": "…"}}'),
        ({"input": ONE}, "unknown key `input` in the body: did you mean `inputs`?"),
        ({"inputs": ONE, "params": {}}, "unknown key `params` in the body: did you mean `parameters`?"),
        ({**ONE, "top_k": 2}, "unknown key `top_k` in the body: known are `question` and `context`"),
        (
            {"question": 5},
            "`question` is a number: it must be a string; "
            "`context` is missing: a question needs `question` and `context`",
        ),
        ({**ONE, "parameters": {"top_k": 0}}, "`parameters.top_k` is out of range: it must be from 1 to 1000"),
        (
            {"inputs": [{"question": ""}, 3], "params": {}, "parameters": {"top_k": 0, "topk": 1}},
            "unknown key `params` in the body: did you mean `parameters`?; `inputs[0].question` is empty: send some "
            "text; `inputs[0].context` is missing: a question needs `question` and `context`; `inputs[1]` is a number: "
            "it must be an object with `question` and `context`; `parameters.top_k` is out of range: it must be from 1 "
            "to 1000; `parameters.topk` is another name of `top_k`: send one of the two",
        ),
        (
            {"inputs": [1] * 11},
            "; ".join(
                f"`inputs[{i}]` is a number: it must be an object with `question` and `context`" for i in range(10)
            )
            + "; and more",
        ),
        ({"inputs": []}, "`inputs` is an empty list: send at least one question with its context"),
        ({"inputs": "Who?"}, "`inputs` is a string: it must be an object with `question` and `context`"),
        ({"inputs": None}, "`inputs` is null: it must be an object with `question` and `context`"),
        ({"inputs": [ONE, 3]}, "`inputs[1]` is a number: it must be an object with `question` and `context`"),
        (
            {"inputs": [ONE, ONE, {"question": "Who?", "context": 5}]},
            "`inputs[2].context` is a number: it must be a string",
        ),
        ({"inputs": {"question": "Who?", "context": ["a"]}}, "`inputs.context` is a list: it must be a string"),
        (
            {"inputs": {"question": "Who?"}},
            "`inputs.context` is missing: a question needs `question` and `context`",
        ),
        ({"inputs": {"question": " \n", "context": "Philipp."}}, "`inputs.question` is empty: send some text"),
        ({"inputs": [{"question": "Who?", "context": ""}]}, "`inputs[0].context` is empty: send some text"),
        (
            {"inputs": {**ONE, "contxt": "x"}},
            "unknown key `contxt` in `inputs`: did you mean `context`?",
        ),
        (
            {"inputs": ONE, "parameters": [1]},
            "`parameters` is a list: it must be an object with `top_k`, `max_answer_len`, `max_question_len`, "
            "`max_seq_len`, `doc_stride`, `handle_impossible_answer`, `align_to_words` and `topk`",
        ),
        (with_parameters(topk=0), "`parameters.topk` is out of range: it must be from 1 to 1000"),
        (
            with_parameters(max_question_len=0),
            "`parameters.max_question_len` is out of range: it must be from 1 to 100000",
        ),
        (with_parameters(top_k=0), "`parameters.top_k` is out of range: it must be from 1 to 1000"),
        (with_parameters(top_k=True), "`parameters.top_k` is true or false: it must be a whole number"),
        (with_parameters(top_k="3"), "`parameters.top_k` is a string: it must be a whole number"),
        (
            with_parameters(max_answer_len=1.5),
            "`parameters.max_answer_len` is not a whole number: it must be a whole number",
        ),
        (with_parameters(top_k=1001), "`parameters.top_k` is out of range: it must be from 1 to 1000"),
        (with_parameters(max_answer_len=385), "`parameters.max_answer_len` is out of range: it must be from 1 to 384"),
        (with_parameters(doc_stride=-1), "`parameters.doc_stride` is out of range: it must be from 0 to 100000"),
        (with_parameters(max_seq_len=10**30), "`parameters.max_seq_len` is out of range: it must be from 1 to 100000"),
        (
            with_parameters(handle_impossible_answer=1),
            "`parameters.handle_impossible_answer` is a number: it must be true or false",
        ),
        (with_parameters(align_to_words="no"), "`parameters.align_to_words` is a string: it must be true or false"),
    ],
)
def test_error_of_parse_lists_up_to_ten_faults_with_places(value: object, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        parse(value)
    assert (caught.value.status, caught.value.message) == (400, sentence)


def test_question_without_inputs_is_accepted() -> None:
    assert parse(ONE) == parse({"inputs": ONE})
    assert parse({**ONE, "parameters": {"top_k": 3}}) == parse({"inputs": ONE, "parameters": {"top_k": 3}})
