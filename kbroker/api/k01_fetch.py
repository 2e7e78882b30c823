"""Fetch: read record batches, with incremental sessions (KIP-227).

Behavior: answered by the data plane (kbroker.ext.fetch).

Version notes:
  v13: topic ids in place of names.

Not done: fetching by followers.
"""

from __future__ import annotations

from kbroker.api.registry import register_data_plane
from kbroker.protocol import ApiKey

register_data_plane(ApiKey.FETCH, 4, 18)
