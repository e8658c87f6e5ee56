"""A recording that the Holoscan SDK 4.6.0 made, byte for byte.

Its recorder was sent four messages, with the acquisition timestamps 4711 to 4714: ``MESSAGES``.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np

INDEX = zlib.decompress(base64.b64decode(
    "eNrTqOz8sdrmhYQtIwMK8DvcBxYPYoLwYfLWfyeAxZmg/H5mCF00eRJYXAAqPpEFQgMAJ3ETsA=="
))  # fmt: skip
ENTITIES = zlib.decompress(base64.b64decode(
    "eNpjYMAOmHCI17jsn3WNsdR8h9XnKyKM4suQ1YMwI5TPDMQsQMwGZTNiwUJIahmQ9A4U2OM9IUYgmvMis99pE8GEzj2cUPGSzNzU"
    "4pLE3AKYwnQhTM3IjmchMvDYYeYVHd52eH4qKPy4gJgDyUgWHGEHwxxUDYEP9lCGA4TicMDldJh3k0CO5sTjZ1oCXI5KZII6iAkt"
    "dTLjCUk2AimfMGAE6mUG2stKeorKEMKfBZlIDIESmG+RQ4AZKY9iwzC1bAMRAplYQoCZjBCA6cnPA+cndqQ8Aot9fKlAAqqWA40m"
    "PSSwO5vo8MiChgcAItNerg=="
))  # fmt: skip

MESSAGES = [
    {"": np.full((4, 6, 3), 0, np.uint8)},
    # The SDK does not keep the order of tensors, and writes a scalar without its value.
    {"größe": np.arange(4.0), "b": np.empty(0, np.float32), "a": np.arange(6, dtype=np.uint16).reshape(2, 3)},
    {"t": np.arange(6, dtype=np.int16).reshape(2, 3).T},
    {"one": np.arange(3, dtype=np.int64).reshape(1, 3, 1)},
]
