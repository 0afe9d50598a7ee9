"""The routes of a server with one model, and of a multi-model endpoint.

One thread reads request bodies, the workers run the model, and a thread pool makes the answers; the event loop only
moves bytes. So /ping never waits for the model. If a client disconnects or its time is over, its request is dropped at
whatever stage it is.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.serve.admission import Admission, Holding
from berth.serve.configuration.settings import ServerSettings, execution_parameters
from berth.serve.errors import Kind, ServeError, as_serve_error
from berth.serve.http.access_log import AccessLog
from berth.serve.http.invocation import invoke, read_body
from berth.serve.http.page import page
from berth.serve.limits import LOAD_REQUEST, for_questions
from berth.serve.models.arguments import requested_model
from berth.serve.models.registry import ModelRegistry
from berth.serve.models.service import Service
from berth.serve.observing.metrics import CONTENT_TYPE, Metrics
from berth.serve.questions.body import Reader
from berth.serve.responses import json_response, refusal

log = logging.getLogger(__name__)

_DEFAULTS = ServerSettings()


def create_app(served: Service | ModelRegistry, settings: ServerSettings = _DEFAULTS) -> AccessLog:
    """The ASGI application for one service, or for a registry of services."""
    admission = Admission(served.limits, lambda: served.waiting_seconds)
    metrics = Metrics(lambda: replace(served.work, bodies=admission.bodies.used))
    reader = Reader(admission.unread)

    async def ping(_request: Request) -> Response:
        served.check_ready()
        return json_response({"status": "ready", **served.summary})

    async def batch_parameters(_request: Request) -> Response:
        limits = served.body_limits if isinstance(served, Service) else for_questions(served.limits)
        return json_response(execution_parameters(settings, served.workers, limits.in_transform))

    async def prometheus(_request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes = [
        _route("/ping", GET=ping),
        _route("/execution-parameters", GET=batch_parameters),
        _route("/metrics", GET=prometheus),
    ]
    if isinstance(served, ModelRegistry):
        routes += _multi_model_routes(served, admission, reader)
    else:
        service = served

        async def invocations(request: Request) -> Response:
            return await invoke(request, service, admission, reader)

        routes.append(_route("/invocations", POST=invocations))
        if settings.page:
            routes.append(_route("/", GET=page))
    return AccessLog(Starlette(routes=routes, exception_handlers={HTTPException: _http_error_handler(routes)}), metrics)


def _multi_model_routes(models: ModelRegistry, admission: Admission, reader: Reader) -> list[Route]:
    """The paths of SageMaker's contract for multi-model endpoints."""

    async def load(request: Request) -> Response:
        name, url = requested_model(await read_body(request, LOAD_REQUEST, Holding()))
        await models.load(name, url)
        return json_response({"status": f"{name} is loaded"})

    async def list_models(request: Request) -> Response:
        query = request.query_params
        return json_response(models.page(query.get("limit"), query.get("next_page_token")))

    async def describe(request: Request) -> Response:
        return json_response(models.description_of(request.path_params["name"]))

    async def unload(request: Request) -> Response:
        name = request.path_params["name"]
        await models.unload(name)
        return json_response({"status": f"{name} is unloaded"})

    async def invoke_model(request: Request) -> Response:
        return await invoke(request, models.service(request.path_params["name"]), admission, reader)

    return [
        _route("/models", GET=list_models, POST=load),
        _route("/models/{name}", GET=describe, DELETE=unload),
        _route("/models/{name}/invoke", POST=invoke_model),
    ]


def _route(path: str, **endpoints: Callable[[Request], Awaitable[Response]]) -> Route:
    """A path with one endpoint per method. Every exception becomes a response.

    Starlette's own handler for exceptions is not used: it raises them again, so that the server logs them twice.
    """

    async def respond(request: Request) -> Response:
        try:
            return await endpoints.get(request.method, endpoints["GET" if "GET" in endpoints else "POST"])(request)
        except Exception as error:
            return refusal(as_serve_error(error, log))
        except asyncio.CancelledError:  # the server stops, and this request's time is over
            sentence = "the server stopped before it could answer: send the request again"
            return refusal(ServeError(Kind.NOT_READY, sentence))

    return Route(path, respond, methods=list(endpoints))


def _http_error_handler(routes: Sequence[Route]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The response to Starlette's own errors: an unknown path, or a method that a path does not take."""
    known = [f"{method} {route.path}" for route in routes for method in sorted((route.methods or set()) - {"HEAD"})]

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allowed = " and ".join(sorted(set((error.headers or {})["Allow"].split(", ")) - {"HEAD"}))
            sentence = f"{request.url.path} does not take {request.method}: it takes {allowed}"
            serve_error = ServeError(Kind.METHOD_NOT_ALLOWED, sentence)
        else:
            paths = f"{', '.join(known[:-1])} and {known[-1]}"
            multi_model = "true" if any(route.path == "/models" for route in routes) else "false"
            sentence = f"no such path: with SAGEMAKER_MULTI_MODEL {multi_model} this server answers {paths}"
            serve_error = ServeError(Kind.NOT_FOUND, sentence)
        response = refusal(serve_error)
        response.headers.update(error.headers or {})
        return response

    return refuse
