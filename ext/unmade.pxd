"""Types whose objects come from the library alone: whoever makes one by hand gets a TypeError.

An `__init__` that raises does not keep `T.__new__(T)` away, which pickle and copy use as well, and
fields that nobody has filled would be read. Called once a module, behind its classes; the module's
own `T.__new__(T)` does not go through the slot.
"""

cdef extern from *:
    """
    static PyObject *kbroker_unmade(PyTypeObject *type, PyObject *args, PyObject *kwargs)
    {
        (void) args;
        (void) kwargs;
        PyErr_Format(PyExc_TypeError, "%s objects are not made by hand", type->tp_name);
        return NULL;
    }

    static void kbroker_not_by_hand(PyObject *type)
    {
        ((PyTypeObject *) type)->tp_new = kbroker_unmade;
        ((PyTypeObject *) type)->tp_vectorcall = NULL;  /* Cython's way around tp_new */
        PyType_Modified((PyTypeObject *) type);
    }
    """
    void not_by_hand "kbroker_not_by_hand"(object type)
