"""Topics: messages between programs that come and go.

`Fragment.export_topic` and `Fragment.import_topic` add operators (`operators`) that hold a `Publication` or a
`Subscription`. Publishers are found by a discovery: a private folder of sockets (`folder`) and, between hosts,
Zenoh (`zenoh_discovery`). Each subscriber has a link of its own (`headrace.link`).
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
