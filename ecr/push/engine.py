"""The push of one image by the engine: follows its events, and retries if that may help.

The engine asks the registry for each layer before it sends it, so a retry sends only what has not arrived. The
credentials are part of the request to the engine and are never written to disk.
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
"""Failures in a row, without a new layer in the registry, after which the push is given up."""
_ENGINES_TRIES = 3
"""A failure counts so many times if the engine itself sent a layer again before it gave up, which takes up to 50 s."""
_LONGEST_WAIT_S = 30.0
# The engine sends no event while it waits for the registry, which may store a layer of a gigabyte.
SILENCE_S = 900
# The SDK reads a push's stream with urllib3; its other requests raise errors of requests.
_CONNECTION_ERRORS = (requests.RequestException, HTTPError)


@contextmanager
def tagged(client: docker.DockerClient, image_id: str, reference: Reference) -> Iterator[None]:
    """Names the image `reference` on the engine for the `with` block, because the engine pushes by name. Afterwards the
    name is as before: gone, on this image, or on another one.
    """
    try:
        before = _holder(client, reference)
        client.api.tag(image_id, reference.name, reference.tag)
    except APIError as error:
        raise UserError(
            f"the engine can't tag {image_id[:19]} as {reference} ({error.explanation or error}): check that the image "
            "still exists, or build it again, then push again."
        ) from None
    except _CONNECTION_ERRORS as error:
        raise _engine_lost(error) from None
    try:
        yield
    finally:
        # If the engine has gone away, the push reports it.
        with suppress(DockerException, *_CONNECTION_ERRORS):
            if before is None:
                client.api.remove_image(str(reference), noprune=True)
            elif before != image_id:
                client.api.tag(before, reference.name, reference.tag)


def _holder(client: docker.DockerClient, reference: Reference) -> str | None:
    """The ID of the image that has this name on the engine; None if there is none."""
    try:
        return str(client.images.get(str(reference)).id)
    except ImageNotFound:
        return None


def push_with_retries(context: PushContext, reference: Reference, login: Login) -> frozenset[str]:
    """Pushes the image that the engine has under `reference`; UserError if the retries fail, too.

    Returns the layers that were sent, by the digits that the engine prints. Prints a line for each retry, also for
    those of the engine itself.
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
        diagnosis = diagnose(error, reference.host, reference.repository)
        failures = 0 if len(stream.sent) > before else failures
        failures += _ENGINES_TRIES if stream.retried else 1
        # A new login was refused without progress in between, so the reason is not an expired token.
        refused = diagnosis.remedy is Remedy.LOGIN and renew and failures > 1
        if diagnosis.remedy is Remedy.STOP or refused or failures >= TRIES:
            raise UserError(diagnosis.sentence)
        renew = diagnosis.remedy is Remedy.LOGIN
        wait = 0.0 if renew else min(2.0 ** (failures - 1), _LONGEST_WAIT_S)
        how = "with a new login" if renew else f"in {wait:.0f} s"
        arrived = sum(bool(layer.end) for layer in stream.layers.values())
        context.say(
            f"{reference}: {reason(error)}; trying again {how}, {arrived} of {len(stream.layers)} layers are there"
        )
        context.stopped.wait(wait)


def _try(context: PushContext, reference: Reference, credentials: Credentials | None, stream: PushStream) -> str:
    """Pushes once, with the events fed to `stream`; returns the error that ended it, empty if it succeeded."""
    # Without credentials an empty dictionary keeps the SDK from looking into Docker's settings again.
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
    except (DockerException, *_CONNECTION_ERRORS) as error:
        raise _engine_lost(error) from None
    return stream.error


def _engine_lost(error: Exception) -> UserError:
    return UserError(
        f"the Docker engine went away ({type(error).__name__}): start it again, then push again; complete layers "
        "are not sent again."
    )
