"""The events of a push, as engine 20.10 sends them."""

from typing import Any

from berth.ecr.push.events import PushStream, sent_and_there

A, B, C = "a" * 12, "b" * 12, "c" * 12


def fed(*events: dict[str, Any]) -> PushStream:
    stream = PushStream()
    for event in events:
        stream.feed(event)
    return stream


def test_a_layer_goes_from_bytes_to_its_end() -> None:
    stream = PushStream()
    assert stream.feed({"status": "The push refers to repository [h/r]"}) is None
    assert stream.feed({"status": "Preparing", "progressDetail": {}, "id": A}) is None
    state = stream.feed({"status": "Pushing", "progressDetail": {"current": 512, "total": 2048}, "id": A})
    assert state is not None
    assert (state.current, state.total, state.end) == (512, 2048, "")
    state = stream.feed({"status": "Pushed", "progressDetail": {}, "id": A})
    assert state is not None
    assert state.end == "sent"
    assert stream.sent == {A}


def test_what_the_registry_has_is_not_sent() -> None:
    stream = fed(
        {"status": "Pushed", "id": A},
        {"status": "Layer already exists", "id": A},
        {"status": "Layer already exists", "id": B},
        {"status": "Mounted from berth-serve", "id": C},
    )
    assert stream.sent == {A}
    assert {state.end for state in stream.layers.values()} == {"sent", "there", "mounted"}


def test_a_layer_of_a_push_that_broke_off_was_sent_though_the_next_try_finds_it_there() -> None:
    stream = fed(
        {"status": "Pushing", "progressDetail": {"current": 512, "total": 2048}, "id": A},
        {"error": "unexpected EOF"},
        {"status": "Layer already exists", "id": A},
    )
    assert stream.sent == {A}


def test_it_is_known_that_the_engine_tried_by_itself() -> None:
    waiting = {"status": "Retrying in 5 seconds", "progressDetail": {}, "id": A}
    pushing = {"status": "Pushing", "progressDetail": {"current": 1, "total": 2}, "id": A}
    assert not fed(pushing).retried
    stream = fed(pushing, waiting)
    assert (stream.retried, stream.layers[A].waits) == (True, True)
    stream = fed(pushing, waiting, pushing)
    assert (stream.retried, stream.layers[A].waits) == (True, False)


def test_an_error_is_kept() -> None:
    assert fed({"errorDetail": {"message": "unexpected EOF"}, "error": "unexpected EOF"}).error == "unexpected EOF"


def test_bytes_are_the_manifests_compressed_ones_and_a_layer_that_occurs_twice_counts_once() -> None:
    diff_ids = [f"sha256:{letter * 64}" for letter in "aabc"]
    layers = [("sha256:1", 10), ("sha256:1", 10), ("sha256:2", 200), ("sha256:3", 3000)]
    assert sent_and_there(diff_ids, layers, {A, C}) == (3010, 200)


def test_layers_that_containerds_store_names_by_their_compressed_digests_count_as_sent() -> None:
    """With the config and the manifest among them, which are no layers."""
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
