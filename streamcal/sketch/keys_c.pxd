# The types with which keys_c.py is compiled; see docs/architecture.md.
cimport cython

cdef double[::1] _REAL
cdef long long[::1] _BITS
cdef double _LEAST
cdef long long _TAIL_BITS, _TAIL_KEY, _HALF_KEY, _FIRST_KEY, _LAST_KEY

@cython.locals(key=cython.longlong)
cpdef long long key_of(double score) noexcept
@cython.locals(above=cython.longlong, distance=double)
cpdef double score_of(long long key) noexcept
@cython.locals(i=Py_ssize_t)
cpdef left_edges_of(const long long[:] cells, int level, double[::1] edges)
@cython.locals(score=double)
cpdef double middle_of(long long first, long long end) noexcept
@cython.locals(i=Py_ssize_t)
cpdef middles_of(const long long[:] cells, const long long[:] ends, int level, double[::1] middles)
@cython.locals(i=Py_ssize_t)
cpdef keys_of(const double[:] scores, long long[::1] keys)
@cython.locals(inside=bint, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_score(const double[::1] scores) noexcept
@cython.locals(bits=int, i=Py_ssize_t)
cpdef Py_ssize_t first_bad_label(const signed char[::1] labels) noexcept
