"""The events of a push, as engine 20.10 sends them."""

from typing import Any

from berth.ecr.push.events import LayerState, PushStream, sent_and_there

A, B, C = "a" * 12, "b" * 12, "c" * 12


def fed(*events: dict[str, Any]) -> PushStream:
    stream = PushStream()
    for event in events:
        stream.feed(event)
    return stream


def test_events_of_a_layer() -> None:
    stream = PushStream()
    assert stream.feed({"status": "The push refers to repository [h/r]"}) is None
    assert stream.feed({"status": "Preparing", "progressDetail": {}, "id": A}) is None
    pushing = {"status": "Pushing", "progressDetail": {"current": 512, "total": 2048}, "id": A}
    assert stream.feed(pushing) == LayerState(A, 512, 2048)
    assert stream.feed({"status": "Pushed", "progressDetail": {}, "id": A}) == LayerState(A, 512, 2048, "sent")
    assert stream.sent == {A}


def test_existing_and_mounted_layers_do_not_count_as_sent() -> None:
    stream = fed(
        {"status": "Pushed", "id": A},
        {"status": "Layer already exists", "id": A},
        {"status": "Layer already exists", "id": B},
        {"status": "Mounted from berth-serve", "id": C},
    )
    assert stream.sent == {A}
    assert {state.end for state in stream.layers.values()} == {"sent", "there", "mounted"}


def test_layer_of_an_interrupted_push_counts_as_sent() -> None:
    stream = fed(
        {"status": "Pushing", "progressDetail": {"current": 512, "total": 2048}, "id": A},
        {"error": "unexpected EOF"},
        {"status": "Layer already exists", "id": A},
    )
    assert (stream.sent, stream.error) == ({A}, "unexpected EOF")


def test_retries_of_the_engine_are_recorded() -> None:
    waiting = {"status": "Retrying in 5 seconds", "progressDetail": {}, "id": A}
    pushing = {"status": "Pushing", "progressDetail": {"current": 1, "total": 2}, "id": A}
    assert not fed(pushing).retried
    stream = fed(pushing, waiting)
    assert (stream.retried, stream.layers[A].waits) == (True, True)
    stream = fed(pushing, waiting, pushing)
    assert (stream.retried, stream.layers[A].waits) == (True, False)


def test_sent_and_there_counts_compressed_bytes_once_per_layer() -> None:
    diff_ids = [f"sha256:{letter * 64}" for letter in "aabc"]
    layers = [("sha256:1", 10), ("sha256:1", 10), ("sha256:2", 200), ("sha256:3", 3000)]
    assert sent_and_there(diff_ids, layers, {A, C}) == (3010, 200)


def test_sent_and_there_with_names_of_containerds_store() -> None:
    """The events then also contain the config and the manifest, which are not layers."""
    diff_ids = [f"sha256:{letter * 64}" for letter in "abc"]
    layers = [(f"sha256:{digit * 64}", size) for digit, size in (("1", 10), ("2", 200), ("3", 3000))]
    stream = fed(
        {"status": "Pushed", "id": "1" * 12},
        {"status": "Layer already exists", "id": "2" * 12},
        {"status": "Pushing", "progressDetail": {"current": 1, "total": 3000}, "id": "3" * 12},
        {"status": "Pushed", "id": "3" * 12},
        {"status": "Pushed", "id": "f" * 12},
        {"status": "Already exists", "id": "e" * 12},
    )
    assert sent_and_there(diff_ids, layers, stream.sent) == (3010, 200)
