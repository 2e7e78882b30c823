"""ListOffsets: offsets of a partition by what they mean, or by time.

Behavior: answered by the data plane (kbroker.ext.list_offsets). What wants rights that are not
known yet comes by here first.

Version notes:
  v2: isolation level. v4: leader epochs. v6: flexible. v7: -3. v8: -4. v9: -5. v11: -6.

Not done: the timeout of v10, which is for looking into tiered storage.
"""

from __future__ import annotations

from kbroker.api.data_rights import go_on_with_rights
from kbroker.api.registry import register_data_plane
from kbroker.protocol import ApiKey

register_data_plane(ApiKey.LIST_OFFSETS, 1, 11, left=go_on_with_rights)
