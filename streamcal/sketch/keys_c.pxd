# The types with which keys_c.py is compiled; see docs/architecture.md.
cimport cython

cdef double[::1] _REAL
cdef long long[::1] _BITS
cdef double _END
cdef long long _END_BITS, _HALF_KEY, _LAST_KEY

@cython.locals(key=cython.longlong)
cpdef long long key_of(double score) noexcept
@cython.locals(distance=double)
cpdef double score_of(long long key) noexcept
@cython.locals(i=Py_ssize_t)
cpdef left_edges_of(const long long[:] cells, int level, double[::1] edges)
@cython.locals(i=Py_ssize_t)
cpdef keys_of(const double[:] scores, long long[::1] keys)
@cython.locals(inside=bint, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_score(const double[::1] scores) noexcept
@cython.locals(bits=int, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_label(const signed char[::1] labels) noexcept
