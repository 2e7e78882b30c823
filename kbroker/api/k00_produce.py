"""Produce: append record batches.

Behavior: answered by the data plane (kbroker.ext.produce).

Version notes:
  3-13 are served. 0-13 are advertised: librdkafka takes a broker without Produce 0 for one that
  cannot talk to it (KAFKA-18659); requests of 0-2 get UNSUPPORTED_VERSION.

Not done: transactional batches.
"""

from __future__ import annotations

from kbroker.api.registry import register_data_plane
from kbroker.protocol import ApiKey

register_data_plane(ApiKey.PRODUCE, 3, 13, advertised_low=0)
