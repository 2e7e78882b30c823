"""Fetch: read record batches, with incremental sessions (KIP-227).

Behavior: answered by the data plane (kbroker.ext.fetch). What wants rights that are not known yet
comes by here first.

Version notes:
  v13: topic ids in place of names.

Not done: fetching by followers.
"""

from __future__ import annotations

from kbroker.api.data_rights import go_on_with_rights
from kbroker.api.registry import register_data_plane
from kbroker.protocol import ApiKey

register_data_plane(ApiKey.FETCH, 4, 18, left=go_on_with_rights)
