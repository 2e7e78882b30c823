"""Produce: append record batches.

Behavior: answered by the data plane (kbroker.ext.produce). What wants rights that are not known yet
comes by here first, and what opens a transaction in a log, for the transaction coordinator to know.

Version notes:
  3-13 are served. 0-13 are advertised: librdkafka takes a broker without Produce 0 for one that
  cannot talk to it (KAFKA-18659); requests of 0-2 get UNSUPPORTED_VERSION.
  v11: TRANSACTION_ABORTABLE. v12: adds its partitions to the transaction.
"""

from __future__ import annotations

from kbroker.api.data_rights import go_on_with_produce
from kbroker.api.registry import register_data_plane
from kbroker.protocol import ApiKey

register_data_plane(ApiKey.PRODUCE, 3, 13, advertised_low=0, left=go_on_with_produce)
