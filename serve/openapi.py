"""The OpenAPI document of this server's paths, made of the same tables that it works by: errors, bounds, media types.

Published at /openapi.json, for clients' generators and for whoever tests a server by its own description.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Any

from berth.serve.codecs import CSV, JSON, JSON_LINES
from berth.serve.errors import STATUS, Kind
from berth.serve.limits import BOUNDS
from berth.serve.request import ALIASES, Parameters

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_ERRORS_OF_ALL = (Kind.TIMEOUT, Kind.INTERNAL)
_INVOCATION = (
    Kind.BAD_REQUEST,
    Kind.NOT_ACCEPTABLE,
    Kind.TOO_LARGE,
    Kind.UNSUPPORTED_MEDIA_TYPE,
    Kind.BROKEN_MODEL,
    Kind.GIVEN_UP,
    Kind.HANDLER_FAILED,
    Kind.NOT_READY,
    Kind.OVERLOADED,
    Kind.TOO_LATE,
)


def document(paths: Sequence[str]) -> dict[str, Any]:
    """What is served at these paths, those of `_PATHS`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Extractive question answering",
            "description": "SageMaker's contract of an inference container.",
            "version": version("berth"),
        },
        "paths": {path: _PATHS[path] for path in paths},
        "components": {"schemas": _schemas()},
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> dict[str, Schema]:
    question = _object({"question": _TEXT, "context": _TEXT}, required=("question", "context"))
    parameters = _object({field.name: _parameter(field.name, field.default) for field in fields(Parameters)})
    parameters["properties"] |= {alias: parameters["properties"][name] for alias, name in ALIASES.items()}
    parameters["not"] = {"anyOf": [{"required": [alias, name]} for alias, name in ALIASES.items()]}
    answer = _object(
        {
            "score": {"type": "number", "minimum": 0, "maximum": 1},
            "start": {"type": "integer", "minimum": 0},
            "end": {"type": "integer", "minimum": 0},
            "answer": {"type": "string"},
        },
        required=("score", "start", "end", "answer"),
    )
    answers = {"oneOf": [_reference("Answer"), {"type": "array", "items": _reference("Answer"), "minItems": 1}]}
    error = _object(
        {
            "error": {"type": "string", "minLength": 1},
            "error_type": {"enum": [str(kind) for kind in Kind]},
            "retry_after": {"type": "integer", "minimum": 1},
        },
        required=("error", "error_type"),
    )
    inputs = {"oneOf": [_reference("Question"), {"type": "array", "items": _reference("Question"), "minItems": 1}]}
    given = {"oneOf": [_reference("Parameters"), {"type": "null"}]}
    whole = _object({"inputs": inputs, "parameters": given}, required=("inputs",))
    bare = _object({**question["properties"], "parameters": given}, required=("question", "context"))
    return {
        "Question": question,
        "Parameters": parameters,
        "Request": {"oneOf": [whole, bare]},
        "Answer": answer,
        "Answers": {"anyOf": [answers, {"type": "array", "items": answers, "minItems": 1}]},
        "Error": error,
    }


def _object(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    found: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})


def _parameter(name: str, default: object) -> Schema:
    if isinstance(default, bool):
        return {"type": "boolean", "default": default}
    least, most = BOUNDS[name]
    found: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return found if default is None else found | {"default": default}


def _errors(*kinds: Kind) -> dict[str, Schema]:
    """Responses by status, with the kinds that have it."""
    by_status: dict[str, list[Kind]] = {}
    for kind in (*kinds, *_ERRORS_OF_ALL):
        by_status.setdefault(str(int(STATUS[kind])), []).append(kind)
    return {
        status: {"description": ", ".join(found), "content": {JSON: {"schema": _reference("Error")}}}
        for status, found in sorted(by_status.items())
    }


def _operation(summary: str, answers: Mapping[str, Schema], *kinds: Kind, body: Schema | None = None) -> Schema:
    found: Schema = {
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": {kind: {"schema": schema} for kind, schema in answers.items()}},
            **_errors(*kinds),
        },
    }
    return found | ({"requestBody": body} if body else {})


_EXAMPLE = {"inputs": {"question": "What is used?", "context": "This model is used with sagemaker for inference."}}
_LINE = '{"question": "What is used?", "context": "This model is used with sagemaker for inference."}'
_LINES: Schema = {"type": "string", "description": "A request a line: each a JSON object as in application/json."}
_TABLE = "question,context\r\nWhat is used?,This model is used with sagemaker for inference.\r\n"
_ROWS: Schema = {
    "type": "string",
    "description": "A question a row (RFC 4180): question and context, or any columns under a first row that names "
    "these two.",
}
_BODY: Schema = {
    "required": True,
    "content": {
        JSON: {"schema": _reference("Request"), "example": _EXAMPLE},
        JSON_LINES: {"schema": _LINES, "example": f"{_LINE}\n{_LINE}\n"},
        CSV: {"schema": _ROWS, "example": _TABLE},
    },
}
_ANSWERS: dict[str, Schema] = {
    JSON: _reference("Answers"),
    JSON_LINES: {"type": "string", "description": "An answer a line, or the error of the line in its place."},
    CSV: {"type": "string", "description": "An answer a row, under names; a row's error is in the column `error`."},
}
_INVOKE = _operation("Answer questions, a record or many.", _ANSWERS, *_INVOCATION, body=_BODY)
_ANY: Schema = {"type": "object"}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_MODEL = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_LOAD: Schema = {
    "required": True,
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "properties": {"model_name": {"type": "string"}, "url": {"type": "string"}},
                "required": ["model_name", "url"],
            }
        }
    },
}
_TOKEN = r"^([A-Za-z0-9_-][A-Za-z0-9_.-]{0,1023})?$"  # a model's name
_PAGE = [
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000}},
    {"name": "next_page_token", "in": "query", "schema": {"type": "string", "pattern": _TOKEN}},
]

_PATHS: dict[str, Schema] = {
    "/ping": {"get": _operation("Whether it can answer.", {JSON: _ANY}, Kind.NOT_READY)},
    "/execution-parameters": {"get": _operation("What a batch transform does unasked.", {JSON: _ANY})},
    "/metrics": {"get": _operation("Prometheus's text.", {"text/plain": {"type": "string"}})},
    "/openapi.json": {"get": _operation("This document.", {JSON: _ANY})},
    "/": {"get": _operation("A page for a browser.", {"text/html": {"type": "string"}})},
    "/state": {"get": _operation("What the page shows of the server.", {JSON: _ANY})},
    "/invocations": {"post": _INVOKE},
    "/models": {
        "get": {**_operation("The models that are loaded.", {JSON: _ANY}, Kind.BAD_REQUEST), "parameters": _PAGE},
        "post": _operation(
            "Load a model.",
            {JSON: _STRINGS},
            Kind.BAD_REQUEST,
            Kind.CONFLICT,
            Kind.TOO_LARGE,
            Kind.BROKEN_MODEL,
            Kind.NOT_READY,
            Kind.NO_MEMORY,
            body=_LOAD,
        ),
    },
    "/models/{name}": {
        "parameters": [_MODEL],
        "get": _operation("A model that is loaded.", {JSON: _STRINGS}, Kind.NOT_FOUND),
        "delete": _operation("Unload a model.", {JSON: _STRINGS}, Kind.NOT_FOUND),
    },
    "/models/{name}/invoke": {"parameters": [_MODEL], "post": _INVOKE},
}
