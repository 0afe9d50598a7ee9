"""The one thread that reads requests: from bytes over JSON and tokens to windows.

One for all, because reading can take a hundred times a request's own size in memory, if only for a moment.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from berth.runtime.memory import give_back
from berth.serve.body import PreparedBody, prepare_body
from berth.serve.codecs import CSV, Codec
from berth.serve.csv_questions import CutFileError
from berth.serve.errors import ServeError
from berth.serve.question_answering import Reading

_LARGE = 65_536
"""Bytes of a body from which on the memory that was needed to read it is given back to the system."""


class Reader:
    """Reads requests in order of arrival."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "reader")
        self._cut_file: CutFileError | None = None

    async def read(self, body: bytes, form: tuple[Codec, str], reading: Reading) -> PreparedBody:
        """What the model needs to answer; ServeError if the request can't be read, or asks too much."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, body, form, reading)

    def _read(self, body: bytes, form: tuple[Codec, str], reading: Reading) -> PreparedBody:
        refusal: ServeError | None = None
        prepared: PreparedBody | None = None
        try:
            prepared = prepare_body(body, form, reading)
        except ServeError as error:
            # Not raised from here: the traceback holds all that was made on the way, until the garbage is collected.
            refusal = error.again()
        if form[0].media_type == CSV:
            refusal = self._refuse_parts(prepared, refusal)
        if len(body) > _LARGE:
            give_back()
        if refusal is not None:
            raise refusal
        assert prepared is not None
        return prepared

    def _refuse_parts(self, prepared: PreparedBody | None, refusal: ServeError | None) -> ServeError | None:
        """The refusal of a body, also because of one before it: in local mode SDKs go on with a file of which a part
        was refused. A body with a row of names begins another file.
        """
        if isinstance(refusal, CutFileError):
            self._cut_file = refusal if refusal.hides else None
        elif prepared is not None and prepared.records.header:
            self._cut_file = None
        if refusal is None and self._cut_file is not None:
            return self._cut_file.of_a_later_body()
        return refusal
