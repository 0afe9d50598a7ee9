"""Content-Type and Accept as real clients write them: with parameters, lists, q-values and wildcards, in any case, or
not at all (boto3 sends no Content-Type unless told to).
"""

from collections.abc import Sequence

from berth.serve.errors import Kind, ServeError

# A fixed set, by how headers write them: `codecs.lookup` keeps every name that it does not know in memory, and looks
# for it in the file system.
_CHARSETS = {
    "utf-8": "utf-8-sig",
    "utf8": "utf-8-sig",
    "us-ascii": "utf-8-sig",
    "ascii": "utf-8-sig",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "iso-8859-1": "iso-8859-1",
    "latin-1": "iso-8859-1",
    "latin1": "iso-8859-1",
    "windows-1252": "cp1252",
    "cp1252": "cp1252",
}


def split(header: str) -> tuple[str, dict[str, str]]:
    """One media type with its parameters, names in lower case: 'A/B; Q="1"' → ('a/b', {'q': '1'})."""
    media_type, *parts = header.split(";")
    parameters = {}
    for part in parts:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    return media_type.strip().lower(), parameters


def encoding_of(parameters: dict[str, str]) -> str:
    """Python's name for the charset that a Content-Type's parameters name, UTF-8 where none does; ServeError (415) if
    it is none that is read. A byte order mark is no part of the text.
    """
    charset = parameters.get("charset", "utf-8")
    encoding = _CHARSETS.get(charset.lower())
    if encoding is None:
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, f"charset `{charset[:80]}` can't be read: send UTF-8")
    return encoding


def best_of(accept: str, offered: Sequence[str]) -> str | None:
    """Which of the types that are offered a client wants most by its Accept header; the first of equals, None if it
    wants none.

    The most specific of `a/b`, `a/*` and `*/*` says how much it wants it (RFC 9110, section 12.5.1); q=0 is not at all.
    """
    quality: dict[str, float] = {}
    for item in accept.split(","):
        media_type, parameters = split(item)
        try:
            q = float(parameters.get("q", "1"))
        except ValueError:  # a malformed q must not cost the client its answer
            q = 1.0
        quality[media_type] = max(q, quality.get(media_type, 0.0))

    def wanted(media_type: str) -> float:
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*", "*")
        return next((quality[each] for each in ranges if each in quality), 0.0)

    best = max(offered, key=wanted)
    return best if wanted(best) > 0 else None
