"""The format of recordings: MCAP, what is in the file, and the parts of the package ``mcap`` that know it.

`MCAP <https://mcap.dev>`_ is the format of the field for recorded messages: a file has an index by time and port, a
process that is killed leaves it readable, and Foxglove, Rerun and other tools open it. `PortRecorder`
describes the contents. The package is MIT, in pure Python, and needs lz4 and zstandard, which have wheels for every
Python and processor that headrace runs on.
"""

from __future__ import annotations

import struct

from headrace.installation import installing

try:
    from mcap import records as records
    from mcap.data_stream import ReadDataStream as ReadDataStream
    from mcap.data_stream import RecordBuilder as RecordBuilder
    from mcap.exceptions import McapError as McapError
    from mcap.opcode import Opcode as Opcode
except ImportError as error:
    raise ImportError(
        f"mcap is needed for recordings: {installing('record')} ({error})", name="mcap"
    ) from error

MAGIC = b"\x89MCAP0\r\n"
PROFILE = "headrace"
VERSION = 1
"""The version of the contents; MCAP has a version of its own."""
LONGEST_RUN = 1 << 24
"""The number of bytes that the description of a run may have; a longer one is neither written nor read."""

RECORD_HEAD = struct.Struct("<BQ")
"""The kind and the length of a record."""
MESSAGE_HEAD = struct.Struct("<BQHIQQ")
"""The whole head of a message: kind, length, channel, sequence, and its time twice; the payload follows."""
CHUNK_HEAD = struct.Struct("<BQQQQIIQ")
"""The whole head of an uncompressed chunk: kind, length, first and last time, size, checksum, 0, size again."""

TREE = "headrace/msg/Message"
IMAGE = "sensor_msgs/msg/Image"
SCHEMAS = {
    TREE: "string tree  # JSON\nuint8[] data  # the arrays that the tree describes",
    IMAGE: """\
std_msgs/Header header
uint32 height
uint32 width
string encoding
uint8 is_bigendian
uint32 step
uint8[] data
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec""",
}
"""What payloads are laid out as, in ROS 2's language (`payloads`)."""
