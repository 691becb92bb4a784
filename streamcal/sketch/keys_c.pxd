# The types with which keys_c.py is compiled; see docs/architecture.md.
cimport cython

cdef double[::1] _REAL
cdef long long[::1] _BITS
cdef double _END
cdef long long _END_BITS, _LAST_KEY

@cython.locals(key=cython.longlong)
cpdef long long key_of(double score) noexcept
@cython.locals(inside=bint, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_score(const double[::1] scores) noexcept
@cython.locals(bits=int, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_label(const signed char[::1] labels) noexcept
