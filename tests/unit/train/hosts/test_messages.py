"""Each field of each message is tried with many values: every one is either read or refused with a reason."""

import json
from collections.abc import Iterator

import pytest

from berth.train.hosts.messages import WireError, decode, encode
from berth.train.hosts.outcome import read_outcome
from tests.unit.train.hosts.hosts_here import MESSAGES

SMALL = (
    'null true -1 0 15 1.5 70000 1e999 Infinity NaN "" "7" "a\\nb" "\\u001b[2J" "\\ud800" [] [null] [[[]]] {} '
    '{"host":1} -Infinity'
)
LARGE = ('"' + "x" * 3000 + '"', "9" * 5000, "[" * 100_000, '{"a":' * 40_000, "[" * 100_000 + "]" * 100_000)


def lines_with(kind: str) -> Iterator[bytes]:
    """The message with each value in each field (those of its report too), and with each field missing."""
    fields = MESSAGES[kind]
    places = [(name,) for name in fields] + [("report", name) for name in fields.get("report", {})]
    for *within, name in places:
        for value in [*SMALL.split(), *LARGE, None]:
            message = json.loads(json.dumps({"kind": kind, **fields}))
            holder = message[within[0]] if within else message
            del holder[name]
            if value is None:
                yield json.dumps(message).encode()
            else:
                holder[name] = "HERE"
                yield json.dumps(message).replace('"HERE"', value).encode()


@pytest.mark.parametrize("kind", [kind for kind, fields in MESSAGES.items() if fields])
def test_every_value_in_every_field_is_read_or_refused(kind: str) -> None:
    read = refused = 0
    for each in lines_with(kind):
        try:
            decoded_kind, fields = decode(each)
        except WireError:
            refused += 1
            continue
        read += 1
        assert decoded_kind == kind
        assert fields.keys() == MESSAGES[kind].keys()
        encode(decoded_kind, fields).decode()
        if kind in ("done", "outcome"):
            read_outcome(fields, now=0.0)
    assert read
    assert refused


def test_decode_reads_what_encode_writes() -> None:
    for kind, fields in MESSAGES.items():
        assert decode(encode(kind, fields)) == (kind, json.loads(json.dumps(fields)))
    assert decode(b'{"kind": "ready", "x": []}') == ("ready", {})


def test_error_names_invalid_field() -> None:
    with pytest.raises(WireError, match=r"a message done .* code"):
        decode(b'{"kind": "done", "code": null, "report": null}')
