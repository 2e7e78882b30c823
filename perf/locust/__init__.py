"""Load tests with Locust: users of two clients, shapes of load, and a verdict.

Locust's greenlets only decide and count. What a client does, it does on a native thread of its
user (lanes.py), since both clients wait outside of Python; so nothing of the standard library is
patched (LOCUST_SKIP_MONKEY_PATCH=1, which `kbroker bench locust` sets).
"""
