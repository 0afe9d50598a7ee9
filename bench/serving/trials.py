"""What users do to an endpoint beside the straight path: handlers, odd bodies, many models, batch transforms.

Each trial starts containers, and returns in a line what a user sees, which `expected` must match.
"""

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.jobs.small import TOKENIZER_FILES
from bench.serving.peak_memory import peak_of
from bench.serving.stage import Files, Stage, read
from berth.local.demo import pretrained_model
from tests.doubles.package_index import wheel

MEBIBYTE = 1 << 20
QUESTION = {"question": "Where is Paris?", "context": "Paris is in France."}
_ASKED = json.dumps({"inputs": QUESTION}).encode()
_CLASSIFIER = (
    '{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 30522, "hidden_size": 32,'
    ' "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}'
)


@dataclass(frozen=True, slots=True)
class Trial:
    """`run` returns what is seen, in a line; `expected`: a pattern of what should be."""

    name: str
    expected: str
    run: Callable[[Stage], str]


def handler(body: str, head: str = "") -> Files:
    """A model of code alone, whose transform_fn has this body: it sees model, body, content_type, accept, context."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    functions = (
        "def model_fn(model_dir, context):\n    return 1\n\n"
        f"def transform_fn(model, body, content_type, accept, context):\n{lines}\n"
    )
    return {"code/inference.py": f"import os, time\n{head}\n{functions}"}


ECHO = handler("return str((len(body), content_type, accept)), 'text/plain'")


# Nobody's request can stop the others.


def _lines(size: int, environment: dict[str, str]) -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        with stage.ready(stage.question_answering, environment) as endpoint:
            before = peak_of(endpoint.container)
            answer = endpoint.invoke(b"x\n" * (size // 2), "application/jsonlines")
            if code := endpoint.exit_code():
                return f"the container ended with exit code {code}"
            grown = (peak_of(endpoint.container) - before) // 10**6
            return f"{answer.status} in {answer.seconds:.1f} s, {grown} MB more: {answer.text[:200]}"

    return run


def _long_exception(stage: Stage) -> str:
    with stage.ready(handler("return str(float(body))")) as endpoint:
        answer = endpoint.invoke(b"a" * 40_000, "text/plain")
        return f"{answer.status} in {answer.seconds:.1f} s: {answer.text[:100]}"


def _stopped_worker(stage: Stage) -> str:
    stops = "import threading, signal\nthreading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()\nreturn 'x'"
    with stage.ready(handler(stops), {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "3"}) as endpoint:
        endpoint.invoke(b"x", "text/plain")
        time.sleep(1)
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(endpoint.invoke, b"x" * MEBIBYTE, "text/plain")
            time.sleep(0.5)
            ping = endpoint.ask("GET", "/ping")
            first = held.result()
        time.sleep(3)
        again = endpoint.invoke(b"x", "text/plain")
        return f"/ping {ping.status} in {ping.seconds:.1f} s, the held request {first.status}, the next {again.status}"


def _four_workers(stage: Stage) -> str:
    with stage.ready(stage.question_answering, {"SAGEMAKER_MODEL_SERVER_WORKERS": "4"}) as endpoint:
        for _ in range(8):
            endpoint.invoke(_ASKED)
        time.sleep(10)
        made = endpoint.log().count("making one")
        return f"{made} conversions, at most {peak_of(endpoint.container) // 10**6} MB; {endpoint.line('engine:')}"


def _first_burst(stage: Stage) -> str:
    slow = handler("time.sleep(1)\nreturn 'x'")
    with stage.ready(slow, {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "10"}) as endpoint:
        with ThreadPoolExecutor(80) as pool:
            asked = []
            for _ in range(80):
                asked.append(pool.submit(endpoint.invoke, b"x", "text/plain"))
                time.sleep(0.05)
            counted = Counter(each.result().status for each in asked)
        return ", ".join(f"{status}: {counted[status]}" for status in sorted(counted))


# A handler owns its requests.


def _sizes(stage: Stage) -> str:
    with stage.ready(ECHO) as endpoint:
        five = endpoint.invoke(b"x" * 5_000_000, "application/octet-stream")
        more = endpoint.invoke(b"x" * (26 * MEBIBYTE), "application/octet-stream")
        return f"5 MB {five.status}, 26 MiB {more}"


def _content_type(stage: Stage) -> str:
    with stage.ready(ECHO) as endpoint:
        return str(endpoint.invoke(b"x", "multipart/form-data; boundary=XyZ", accept="image/png"))


def _empty(stage: Stage) -> str:
    with stage.ready(ECHO) as endpoint:
        return str(endpoint.invoke(b""))


def _accept_default(stage: Stage) -> str:
    with stage.ready(ECHO, {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "image/png"}) as endpoint:
        return str(endpoint.invoke(b"x", "image/jpeg")) if endpoint.line("handler:") else endpoint.line("berth:")


def _gzip(model: Callable[[Stage], Path | Files]) -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        with stage.ready(model(stage)) as endpoint:
            good = endpoint.invoke(gzip.compress(_ASKED), content_encoding="gzip")
            bomb = endpoint.invoke(gzip.compress(b" " * (400 * MEBIBYTE)), content_encoding="gzip")
            return f"{good.status} {good.text[:60]}; a bomb {bomb.status}"

    return run


def _log_level(stage: Stage) -> str:
    head = "import logging\nlogging.getLogger(__name__).info('a line of INFO')"
    with stage.ready(handler("return 'x'", head)) as endpoint:
        return endpoint.line("a line of INFO") or "the line is not in the log"


def _silent(stage: Stage) -> str:
    head = "import logging\nlogging.getLogger(__name__).warning('a line of WARNING')"
    level = {"SAGEMAKER_CONTAINER_LOG_LEVEL": "40"}
    with stage.ready(handler("return 'x'", head), level) as endpoint:
        return endpoint.line("a line of WARNING") or "the line is not in the log"


def _children(stage: Stage) -> str:
    code = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '20'])\nchild.terminate()\n"
        "try:\n    return str(child.wait(3))\nexcept subprocess.TimeoutExpired:\n    child.kill()\n    return 'goes on'"
    )
    with stage.ready(handler(code)) as endpoint:
        return str(endpoint.invoke(b"x", "text/plain"))


def _tokens(stage: Stage) -> str:
    code = "def predict_fn(data, model):\n    return model(question='a', context='a ' * 40_000)\n"
    with stage.ready(
        {**read(stage.question_answering), "code/inference.py": code}, {"BERTH_MAX_REQUEST_TOKENS": "1000000"}
    ) as endpoint:
        return str(endpoint.invoke(_ASKED))[:200]


def _offline(stage: Stage) -> str:
    with stage.ready(handler("return str(os.environ.get('HF_HUB_OFFLINE'))")) as endpoint:
        return str(endpoint.invoke(b"x", "text/plain"))


def _threads(stage: Stage) -> str:
    code = (
        "names = open('/proc/self/environ').read().split('\\0')\nreturn str([n for n in names if n.startswith('OMP')])"
    )
    with stage.ready(handler(code), {"SAGEMAKER_MODEL_SERVER_WORKERS": "2"}) as endpoint:
        return str(endpoint.invoke(b"x", "text/plain"))


def _no_content(stage: Stage) -> str:
    with stage.ready(handler("context.set_response_status(204)\nreturn 'a body'")) as endpoint:
        answer = endpoint.invoke(b"x", "text/plain")
        trouble = "Traceback" in endpoint.log() or "LocalProtocolError" in endpoint.log()
        return f"{answer}, {'a traceback in the log' if trouble else 'no traceback'}"


def _many_headers(stage: Stage) -> str:
    with stage.ready(stage.question_answering) as endpoint:
        answer = endpoint.ask("GET", "/", None, x_long="x" * 100_000)
        counted = 'status="431"' in endpoint.ask("GET", "/metrics").text
        return f"{answer.status}, {'in' if counted else 'not in'} /metrics"


def _parameters(stage: Stage) -> str:
    code = (
        "def model_fn(model_dir, **kwargs):\n    return 1\n\n"
        "async def predict_fn(data, model, top=3):\n    return [top, data]\n"
    )
    with stage.ready({"code/inference.py": code}) as endpoint:
        return (
            str(endpoint.invoke(b"5"))
            if endpoint.line("ready:")
            else endpoint.line("error: model_fn", "error: the model's inference.py", "failed")
        )


def _context_by_name(stage: Stage) -> str:
    code = (
        "def model_fn(model_dir):\n    return 1\n\n"
        "def predict_fn(data, model, *, context=None):\n    return context.get_request_header(0, 'X-Amzn-A')\n"
    )
    with stage.ready({"code/inference.py": code}) as endpoint:
        return str(endpoint.invoke(b"5", x_amzn_a="b"))


def _source_root(stage: Stage) -> str:
    files = {
        "code/src/inference.py": "import helpers, dep\ndef model_fn(d):\n    return 1\n"
        "def predict_fn(data, model):\n    return helpers.A + dep.B\n",
        "code/helpers.py": "A = 1\n",
        "code/requirements.txt": "--no-index\n/opt/ml/model/code/dep-1.0-py3-none-any.whl\n",
        "code/dep-1.0-py3-none-any.whl": wheel("dep", "B = 2\n", "1.0"),
    }
    environment = {"SAGEMAKER_PROGRAM": "src/inference.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code"}
    with stage.ready(files, environment) as endpoint:
        return str(endpoint.invoke(b"5")) if endpoint.line("ready:") else endpoint.line("can't", "raised")


def _unused_file(stage: Stage) -> str:
    files = {**read(stage.question_answering), "inference.py": "def predict_fn(data, model):\n    return 1\n"}
    with stage.ready(files) as endpoint:
        return endpoint.line("inference.py") or "inference.py is not mentioned"


def _near_function(stage: Stage) -> str:
    files = {**read(stage.question_answering), "code/inference.py": "def predict(data, model):\n    return 1\n"}
    with stage.ready(files) as endpoint:
        return endpoint.line("predict") or endpoint.line("inference.py")


def _imports(line: str) -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        code = f"{line}\ndef model_fn(model_dir):\n    return 1\ndef predict_fn(data, model):\n    return 'works'\n"
        with stage.endpoint({"code/inference.py": code}) as endpoint:
            if endpoint.wait():
                return str(endpoint.invoke(b"5"))
            return endpoint.line("error: the model's inference.py", "error: model_fn", "failed")

    return run


# Many models, and what their records do to each other.


def _packages(stage: Stage) -> str:
    def model(name: str) -> Files:
        return {
            "code/inference.py": "import dep\ndef model_fn(d):\n    return 1\n"
            "def predict_fn(data, model):\n    return dep.B\n",
            "code/requirements.txt": f"--no-index\n/opt/ml/models/{name}/code/dep-1.0-py3-none-any.whl\n",
            "code/dep-1.0-py3-none-any.whl": wheel("dep", f"B = {name!r}\n", "1.0"),
        }

    options = {"read_only": True, "tmpfs": {"/tmp": "exec"}}
    with stage.many({"a": model("a"), "b": model("b")}, **options) as endpoint:
        loaded = [endpoint.load(name) for name in ("a", "b")]
        if any(each.status != 200 for each in loaded):
            return str(next(each for each in loaded if each.status != 200))
        return "; ".join(str(endpoint.invoke_model(name, b"5")) for name in ("a", "b"))


def _reload(stage: Stage) -> str:
    slow = handler("time.sleep(float(body))\nreturn 'x'")
    with stage.many({"a": slow}) as endpoint, ThreadPoolExecutor(3) as pool:
        endpoint.load("a")
        asked = pool.submit(endpoint.invoke_model, "a", b"4")
        time.sleep(1)
        unloaded = pool.submit(endpoint.ask, "DELETE", "/models/a")
        time.sleep(0.5)
        again = pool.submit(endpoint.load, "a")
        statuses = [each.result().status for each in (asked, unloaded, again)]
        then = endpoint.invoke_model("a", b"0").status
        return f"asked {statuses[0]}, unloaded {statuses[1]}, loaded again {statuses[2]}, asked again {then}"


def _stop_while_unloading(stage: Stage) -> str:
    slow = handler("time.sleep(float(body))\nreturn 'x'")
    with stage.many({"a": slow}) as endpoint, ThreadPoolExecutor(3) as pool:
        endpoint.load("a")
        asked = pool.submit(endpoint.invoke_model, "a", b"5")
        time.sleep(1)
        pool.submit(endpoint.ask, "DELETE", "/models/a")
        time.sleep(0.5)
        endpoint.container.kill("SIGTERM")
        return f"the accepted request {asked.result()}"


def _dead_worker(stage: Stage) -> str:
    code = handler("open('/tmp/dead', 'w')\nos._exit(1)", "if os.path.exists('/tmp/dead'):\n    os._exit(1)")
    with stage.many({"a": code}) as endpoint:
        endpoint.load("a")
        endpoint.invoke_model("a", b"5")
        time.sleep(12)
        listed = '"a"' in endpoint.ask("GET", "/models").text
        return f"invoke {endpoint.invoke_model('a', b'5').status}, {'listed' if listed else 'not listed'}"


def _idle_of_many(stage: Stage) -> str:
    environment = {"SAGEMAKER_MODEL_SERVER_WORKERS": "4", "BERTH_PAGE": "on"}
    with stage.many({}, environment=environment) as endpoint:
        return endpoint.line("without effect") or "nothing is named"


def _long_limit(stage: Stage) -> str:
    with stage.many({}) as endpoint:
        return str(endpoint.ask("GET", f"/models?limit={'9' * 5000}"))[:120]


def _transform(*bodies: str) -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        with stage.ready(stage.question_answering, {"SAGEMAKER_BATCH": "true"}) as endpoint:
            answers = [endpoint.invoke(body.encode(), "text/csv") for body in bodies]
            return " / ".join(f"{each.status} {each.text.strip()[:160]}" for each in answers).replace("\r\n", " ⏎ ")

    return run


def _broken_quote(stage: Stage) -> str:
    body = 'Where is Paris?,Paris is in France.\r\n"Where,Rome is in Italy.\r\nWhere is Oslo?,Oslo is in Norway.\r\n'
    with stage.ready(stage.question_answering) as endpoint:
        answer = endpoint.invoke(body.encode(), "text/csv")
        return f"{answer.status} {answer.text.strip()[:300]}".replace("\r\n", " ⏎ ")


def _sends(body: bytes, content_type: str = "application/json") -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        with stage.ready(stage.question_answering) as endpoint:
            return str(endpoint.invoke(body, content_type))

    return run


# What is served, by name.


def _fails(files: Callable[[Stage], Files]) -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        with stage.endpoint(files(stage)) as endpoint:
            endpoint.container.wait(timeout=60)
            return endpoint.line("error:")

    return run


def _classifier(stage: Stage) -> Files:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    folder = stage.write({})
    BertForSequenceClassification(BertConfig.from_dict(json.loads(_CLASSIFIER))).save_pretrained(folder)
    return {**read(folder), **{name: (pretrained_model() / name).read_bytes() for name in TOKENIZER_FILES}}


TRIALS = (
    Trial("2 MiB of bad JSON lines", r"^(200|413) in [01]\.\d s, [12]?\d?\d MB more", _lines(2 * MEBIBYTE, {})),
    Trial(
        "6 MiB of bad JSON lines to a batch transform",
        r"^(200|413) in \d\.\d s, [1-5]?\d?\d MB more",
        _lines(6 * MEBIBYTE, {"SAGEMAKER_BATCH": "true"}),
    ),
    Trial("a word of 40 KB in a handler's exception", r"^500 in 0\.\d s", _long_exception),
    Trial(
        "1 MB to a worker that is stopped, at a limit of 3 s",
        r"^/ping 200 in 0\.\d s, the held request 50[0-4], the next 200",
        _stopped_worker,
    ),
    Trial("four workers and a model without a graph", r"^1 conversions?, at most [1-9]\d\d MB", _four_workers),
    Trial("80 requests in 4 s to a handler of 1 s that has 10 s for each", r"^200: (\d+), 503: (\d+)$", _first_burst),
    Trial("5 MB and 26 MiB to a handler", r"^5 MB 200, 26 MiB 413: .*SAGEMAKER_MAX_PAYLOAD_IN_MB", _sizes),
    Trial("Content-Type with parameters to a handler", r"multipart/form-data; boundary=XyZ", _content_type),
    Trial("an empty body to a handler", r"^200: \(0, 'application/json'", _empty),
    Trial("another type as default of Accept", r"^200: \(1, 'image/jpeg', 'image/png'\)", _accept_default),
    Trial(
        "Content-Encoding gzip, and 400 MB of blanks",
        r"^200 .*; a bomb 413",
        _gzip(lambda each: each.question_answering),
    ),
    Trial("the same with a handler", r"^200 \(\d+, .*; a bomb 413", _gzip(lambda each: ECHO)),
    Trial("what a handler logs at INFO", r"a line of INFO", _log_level),
    Trial("what it warns of at the level error", r"^the line is not in the log", _silent),
    Trial("a handler terminates its child", r"^200: -15", _children),
    Trial("BERTH_MAX_REQUEST_TOKENS and our model in a handler", r"^200: ", _tokens),
    Trial("HF_HUB_OFFLINE in a handler", r"^200: None", _offline),
    Trial("threads of one of two workers, before it starts", r"OMP_NUM_THREADS=1", _threads),
    Trial("status 204 with a body", r"^204: , no traceback", _no_content),
    Trial("a header of 100 KB", r"^431, in /metrics", _many_headers),
    Trial("model_fn(**kwargs), and an async predict_fn(…, top=3)", r"^200: \[3, ?5\]", _parameters),
    Trial("predict_fn(…, *, context=None)", r'^200: "?b"?$', _context_by_name),
    Trial("a module and requirements.txt beside src/inference.py", r"^200: 3", _source_root),
    Trial("inference.py at the root of the archive", r"inference\.py.*code/", _unused_file),
    Trial("a function called predict", r"meant to be predict_fn, rename it", _near_function),
    Trial(
        "Hugging Face's decoder_encoder",
        r"^200|delete input_fn and output_fn",
        _imports("from sagemaker_huggingface_inference_toolkit import decoder_encoder"),
    ),
    Trial(
        'pipeline("question-answering")',
        r"berth\.",
        _imports("from transformers import pipeline\npipeline('question-answering')"),
    ),
    Trial("two models with packages of their own", r'^200: "?a"?; 200: "?b"?', _packages),
    Trial(
        "a model loaded again while it is unloaded",
        r"asked 200, unloaded 200, loaded again 200, asked again 200",
        _reload,
    ),
    Trial("SIGTERM while a model is unloaded", r"^the accepted request 200", _stop_while_unloading),
    Trial("a model whose worker can't be had any more", r"^invoke 404, not listed", _dead_worker),
    Trial("variables without effect on many models", r"BERTH_PAGE.*SAGEMAKER_MODEL_SERVER_WORKERS", _idle_of_many),
    Trial("GET /models with a limit of 5,000 digits", r"^400", _long_limit),
    Trial(
        "a transform's CSV, context first, in two bodies",
        r"^400 .*SplitType Line.* / 400 ",
        _transform(
            "context,question\r\nParis is in France.,Where is Paris?\r\n", "Rome is in Italy.,Where is Rome?\r\n"
        ),
    ),
    Trial(
        "a transform's CSV: a body of names alone",
        r"^200 score,start,end,answer,error / 200 0\.\d+,",
        _transform("question,context\r\n", "Where is Rome?,Rome is in Italy.\r\n"),
    ),
    Trial("a broken quote in the second of three rows", r"^200 .*⏎.*quote", _broken_quote),
    Trial("JSON encoded twice", r"^400: .*encoded twice", _sends(json.dumps(_ASKED.decode()).encode())),
    Trial("a BertForSequenceClassification", r"BertForSequenceClassification.*code/inference\.py", _fails(_classifier)),
)
