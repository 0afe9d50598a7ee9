"""The routes of a server with one model, and of one with many.

Requests are read in a thread of the reader's, inference happens in the workers, answers are made and written in a
thread pool; the event loop only moves bytes. So /ping is never behind the model. A client that goes takes its request
with it, wherever it is, and so does the time limit.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.serve.access_log import AccessLog
from berth.serve.admission import Admission, Holding
from berth.serve.answering import Intake
from berth.serve.body import Reader
from berth.serve.codecs import split
from berth.serve.errors import Kind, ServeError
from berth.serve.invocation import Invoker, read_body
from berth.serve.limits import LOAD_REQUEST, for_questions
from berth.serve.metrics import CONTENT_TYPE, Metrics
from berth.serve.models.arguments import requested_model
from berth.serve.models.registry import ModelRegistry
from berth.serve.page import page
from berth.serve.responses import Endpoint, json_response, refusal, with_error_bodies
from berth.serve.service import Service
from berth.serve.settings import ServerSettings, execution_parameters

_DEFAULTS = ServerSettings()


def create_app(served: Service | ModelRegistry, chosen: ServerSettings = _DEFAULTS) -> AccessLog:
    """The ASGI application over a service, or over a registry of them, within its limits."""
    admission = Admission(served.limits, lambda: served.waiting_seconds)
    metrics = Metrics(lambda: replace(served.load_now(), bodies=admission.bodies.used))
    default_type = split(chosen.accept)[0] if chosen.accept else None
    invoker = Invoker(served.limits, admission, Intake(Reader(), admission.unread, default_type))

    async def ping(_request: Request) -> Response:
        served.check_ready()
        return json_response(200, {"status": "ready", **served.summary})

    async def batch_parameters(_request: Request) -> Response:
        limits = served.body_limits if isinstance(served, Service) else for_questions(served.limits)
        return json_response(200, execution_parameters(chosen, served.workers, limits.in_transform))

    async def prometheus(_request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes = [
        _route("/ping", GET=ping),
        _route("/execution-parameters", GET=batch_parameters),
        _route("/metrics", GET=prometheus),
    ]
    if isinstance(served, ModelRegistry):
        routes += _routes_of_many(served, invoker)
    else:
        service = served

        async def invocations(request: Request) -> Response:
            return await invoker.answer(request, service)

        routes.append(_route("/invocations", POST=invocations))
        if chosen.page:
            routes.append(_route("/", GET=page))
    return AccessLog(Starlette(routes=routes, exception_handlers={HTTPException: _refusing(routes)}), metrics)


def _routes_of_many(models: ModelRegistry, invoker: Invoker) -> list[Route]:
    """SageMaker's contract for a container that holds many models."""

    async def load(request: Request) -> Response:
        name, url = requested_model(await read_body(request, LOAD_REQUEST, Holding()))
        await models.load(name, url)
        return json_response(200, {"status": f"{name} is loaded"})

    async def listed(request: Request) -> Response:
        query = request.query_params
        return json_response(200, models.page(query.get("limit"), query.get("next_page_token")))

    async def described(request: Request) -> Response:
        return json_response(200, models.description_of(request.path_params["name"]))

    async def unload(request: Request) -> Response:
        name = request.path_params["name"]
        await models.unload(name)
        return json_response(200, {"status": f"{name} is unloaded"})

    async def invoke(request: Request) -> Response:
        return await invoker.answer(request, models.service(request.path_params["name"]))

    return [
        _route("/models", GET=listed, POST=load),
        _route("/models/{name}", GET=described, DELETE=unload),
        _route("/models/{name}/invoke", POST=invoke),
    ]


def _route(path: str, **endpoints: Endpoint) -> Route:
    """What answers at a path, by method."""

    async def dispatched(request: Request) -> Response:
        return await endpoints.get(request.method, endpoints["GET" if "GET" in endpoints else "POST"])(request)

    return Route(path, with_error_bodies(dispatched), methods=list(endpoints))


def _refusing(routes: Sequence[Route]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What answers Starlette's own errors: an unknown path, or a method that a path does not take."""
    known = [f"{method} {route.path}" for route in routes for method in sorted((route.methods or set()) - {"HEAD"})]

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            taken = " and ".join(sorted(set((error.headers or {})["Allow"].split(", ")) - {"HEAD"}))
            sentence = f"{request.url.path} does not take {request.method}: it takes {taken}"
            found = ServeError(Kind.METHOD_NOT_ALLOWED, sentence)
        else:
            paths = f"{', '.join(known[:-1])} and {known[-1]}"
            wanted = "true" if any(route.path == "/models" for route in routes) else "false"
            sentence = f"no such path: with SAGEMAKER_MULTI_MODEL {wanted} this server answers {paths}"
            found = ServeError(Kind.NOT_FOUND, sentence)
        response = refusal(found)
        response.headers.update(error.headers or {})
        return response

    return refused
