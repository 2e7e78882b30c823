"""The floors of the house: one ordered list, lowest first.

A module may import and cimport what stands above its own line here, and what belongs to the same
line. An entry is a module or a package with all that is in it; the longest entry that fits counts.
A new module of `ext/` gets a line of its own, where a byte meets it. tests/unit/test_layers.py
reads every `.py`, `.pyi`, `.pyx` and `.pxd` and enforces this.
"""

LAYERS = (
    # 0: what everybody may know
    "kbroker",
    "kbroker.errors",
    "kbroker.limits",
    "kbroker.clock",
    "kbroker.files",
    "kbroker.uuids",
    "kbroker.runfile",
    # 1: the data plane, in the order in which a byte meets it
    "kbroker.ext",
    "kbroker.ext.atomics",
    "kbroker.ext.debug",
    "kbroker.ext.endian",
    "kbroker.ext.bits",
    "kbroker.ext.posix",
    "kbroker.ext.clock",
    "kbroker.ext.sockets",
    "kbroker.ext.wire",
    "kbroker.ext.crc32c",
    "kbroker.ext.compression",
    "kbroker.ext.batch",
    "kbroker.ext.index",
    "kbroker.ext.segment",
    "kbroker.ext.producers",
    "kbroker.ext.epochs",
    "kbroker.ext.journal",
    "kbroker.ext.journal_files",
    "kbroker.ext.log_state",
    "kbroker.ext.log_append",
    "kbroker.ext.log_read",
    "kbroker.ext.log_recovery",
    "kbroker.ext.log_retention",
    "kbroker.ext.log",
    "kbroker.ext.registry",
    "kbroker.ext.timer",
    "kbroker.ext.memory",
    "kbroker.ext.frame",
    "kbroker.ext.connection",
    "kbroker.ext.response",
    "kbroker.ext.log_ring",
    "kbroker.ext.purgatory",
    "kbroker.ext.network",
    "kbroker.ext.produce",
    "kbroker.ext.session",
    "kbroker.ext.fetch",
    "kbroker.ext.list_offsets",
    "kbroker.ext.queue",
    "kbroker.ext.engine",
    "kbroker.ext.client",
    "kbroker.ext.testing",
    # 2: control-plane messages and settings
    "kbroker.protocol",
    "kbroker.metrics",
    "kbroker.config",
    # 3: the Python face of the client
    "kbroker.client",
    # 4: policy over the logs
    "kbroker.storage",
    # 5: the metadata log and the image folded from it
    "kbroker.metadata",
    # 6: coordinators and policies
    "kbroker.group",
    "kbroker.txn",
    "kbroker.security",
    "kbroker.quota",
    # 7: one handler per API key
    "kbroker.api",
    # 8: the wiring
    "kbroker.server",
    # 9: what people run
    "kbroker.cli",
    "perf",
    "examples",
    "pyspark_kbroker",
)
