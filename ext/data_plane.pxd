"""The data plane as the control plane sees it: see data_plane.pyx."""
from kbroker.ext.broker cimport Broker, Directory
from kbroker.ext.engine cimport Engine
from kbroker.ext.pulses cimport Pulses

cdef class DataPlane:
    cdef readonly Engine engine
    cdef readonly Pulses pulses
    cdef Broker* broker
    cdef list paths                 # of log.dirs, as bytes
    cdef Directory* at(self, int place) except NULL
    cdef list journals(self)
