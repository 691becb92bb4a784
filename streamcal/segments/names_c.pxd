# The types with which names_c.py is compiled; see docs/architecture.md.
cimport cython

cdef Py_ssize_t _LONGEST, _PLAIN

@cython.locals(text=str, size=Py_ssize_t)
cpdef name_of(value)

cpdef bytes as_bytes(str name)

cpdef as_name(bytes data)
