"""Small programs that run unchanged on headrace and on the Holoscan SDK.

Each program is a function that takes `sdk` (a namespace with the names both systems share) and `log` (a list to
append to), runs an application and leaves in `log` what a user would have observed. Exceptions that come out of
`run()` are logged by the caller as one entry, without their text: the two systems agree on whether a mistake is
refused, not on how it is worded.
"""

from __future__ import annotations

from tests.oracle.programs import conditions, flows, messages, operators, queues, runs, tracking
from tests.oracle.sdk import PROGRAMS, load

__all__ = ["PROGRAMS", "conditions", "flows", "load", "messages", "operators", "queues", "runs", "tracking"]
