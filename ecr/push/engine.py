"""One push of one image by the engine: followed event by event, tried again where that can help, resumed by itself.

The engine asks the registry for each layer before it sends it, so that another try sends only what has not arrived. The
credentials go with the request to the engine and are written nowhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from urllib3.exceptions import HTTPError

from berth.common.errors import UserError
from berth.ecr.push.context import PushContext
from berth.ecr.push.engine_errors import Remedy, diagnose, reason
from berth.ecr.push.events import PushStream
from berth.ecr.registry.challenge import Credentials, Login
from berth.ecr.registry.references import Reference

TRIES = 6
"""In a row without a new layer in the registry."""
_ENGINES_TRIES = 3
"""What a try counts in which the engine had sent a layer five times before it gave up."""
_LONGEST_WAIT_S = 30.0
# A push is silent while the engine waits for the registry, which may store a layer of a gigabyte.
SILENCE_S = 900
# The SDK reads the stream of a push below requests, whose errors come from everywhere else.
_GONE = (requests.RequestException, HTTPError)


@contextmanager
def tagged(client: docker.DockerClient, image_id: str, reference: Reference) -> Iterator[None]:
    """The engine pushes by name: gives the image the name of its place in the registry, and afterwards leaves that name
    as it was before: gone, on this image, or on another one.
    """
    try:
        before = _holder(client, reference)
        client.api.tag(image_id, reference.name, reference.tag)
    except APIError as error:
        raise UserError(
            f"the engine can't call {image_id[:19]} {reference} ({error.explanation or error}): see that the image is "
            "still there, or build it again, then push again."
        ) from None
    except _GONE as error:
        raise _gone(error) from None
    try:
        yield
    finally:
        # Of an engine that has gone away the push itself tells.
        with suppress(DockerException, *_GONE):
            if before is None:
                client.api.remove_image(str(reference), noprune=True)
            elif before != image_id:
                client.api.tag(before, reference.name, reference.tag)


def _holder(client: docker.DockerClient, reference: Reference) -> str | None:
    """The id of the image that has this name on the engine; None if there is none."""
    try:
        return str(client.images.get(str(reference)).id)
    except ImageNotFound:
        return None


def push_with_retries(context: PushContext, reference: Reference, login: Login) -> frozenset[str]:
    """Pushes what the engine has under `reference`; UserError where it stays refused.

    Gives the layers that went, by the first digits of their diff ids. The user reads a line for each further try, the
    engine's own included.
    """
    stream = PushStream()
    failures = 0
    renew = False
    while True:
        if context.stopped.is_set():
            raise KeyboardInterrupt
        before = len(stream.sent)
        error = _try(context, reference, login(renew=renew), stream)
        if not error:
            return frozenset(stream.sent)
        found = diagnose(error, reference.host, reference.repository)
        failures = 0 if len(stream.sent) > before else failures
        failures += _ENGINES_TRIES if stream.retried else 1
        # A login that was refused twice with nothing done in between is no token that ran out.
        refused = found.remedy is Remedy.LOGIN and renew and failures > 1
        if found.remedy is Remedy.STOP or refused or failures >= TRIES:
            raise UserError(found.sentence)
        renew = found.remedy is Remedy.LOGIN
        wait = 0.0 if renew else min(2.0 ** (failures - 1), _LONGEST_WAIT_S)
        how = "with a new login" if renew else f"in {wait:.0f} s"
        there = sum(bool(layer.end) for layer in stream.layers.values())
        context.say(
            f"{reference}: {reason(error)}; trying again {how}, {there} of {len(stream.layers)} layers are there"
        )
        context.stopped.wait(wait)


def _try(context: PushContext, reference: Reference, credentials: Credentials | None, stream: PushStream) -> str:
    """One push into `stream`; the error that ended it, empty where it ended well."""
    # An empty answer to "who are you" keeps the SDK from asking the user's own settings once more.
    auth = {"username": credentials.username, "password": credentials.password} if credentials else {}
    stream.error, stream.retried = "", False
    try:
        events = context.client.api.push(reference.name, tag=reference.tag, stream=True, decode=True, auth_config=auth)
        for event in events:
            if context.stopped.is_set():
                raise KeyboardInterrupt
            retried_before = stream.retried
            state = stream.feed(event)
            if stream.retried and not retried_before:
                context.say(
                    f"{reference}: a layer does not get through; the engine tries it again by itself, for up to 50 s"
                )
            if state is not None:
                context.show(state)
    except APIError as error:
        return str(error.explanation or error)
    except (DockerException, *_GONE) as error:
        raise _gone(error) from None
    return stream.error


def _gone(error: Exception) -> UserError:
    return UserError(
        f"the Docker engine went away ({type(error).__name__}): start it again, then push again; what arrived is not "
        "sent again."
    )
