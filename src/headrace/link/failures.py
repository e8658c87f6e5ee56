"""What an ABORT says: the exception of a part, for the parts that it is linked to."""

from __future__ import annotations

import json
import pickle
import traceback

from headrace.core.errors import LinkError, PeerAborted, ProtocolError, message_of, pickled_error
from headrace.link.protocol import MAX_BODY

_LONGEST_TEXT = 4 << 10
_LONGEST_TRACE = 16 << 10


def encode_failure(error: BaseException, part: str) -> bytes:
    """Return the body of an ABORT: a line of JSON and, if there is room for it, the pickled exception."""
    trace = "".join(traceback.format_exception(error))
    said = {
        "part": part[:_LONGEST_TEXT],
        "type": type(error).__qualname__,
        "text": message_of(error)[:_LONGEST_TEXT],
        "trace": trace[-_LONGEST_TRACE:],
    }
    line = json.dumps(said).encode()
    if len(line) >= MAX_BODY:  # of characters that JSON writes as several
        line = json.dumps(said | {"trace": "", "text": said["text"][:500], "part": part[:500]}).encode()
    pickled = pickled_error(error)
    return line + b"\n" + (pickled if len(line) + 1 + len(pickled) <= MAX_BODY else b"")


def decode_failure(body: bytes, link: str) -> PeerAborted:
    """Return the error for the peers of a part that failed, whose exception is the cause."""
    line, _, pickled = body.partition(b"\n")
    try:
        said = json.loads(line)
        part, kind, text, trace = (str(said[name]) for name in ("part", "type", "text", "trace"))
    except Exception as damage:
        raise ProtocolError(f"an ABORT is damaged: {damage!s:.200}") from None
    error = PeerAborted(f"link {link!r}: {part!r} failed: {kind}: {text}", part)
    cause: BaseException | None = None
    if pickled:
        try:
            cause = pickle.loads(pickled)
        except Exception:  # its class is not here
            cause = None
    if not isinstance(cause, BaseException):
        cause = LinkError(f"{kind}: {text}")
    cause.add_note(f"raised in {part!r}:\n{trace}")
    error.__cause__ = cause
    return error
