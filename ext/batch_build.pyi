"""Nothing of this module is reachable from Python: see the .pxd."""
