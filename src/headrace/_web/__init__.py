"""Pages in the browser: the server that the viewer and the dashboard share; private."""

from __future__ import annotations

from headrace._web.live_server import Client, LiveServer
from headrace._web.messages import MalformedMessage, choice, number, read_message, string, whole

__all__ = [
    "Client",
    "LiveServer",
    "MalformedMessage",
    "choice",
    "number",
    "read_message",
    "string",
    "whole",
]
