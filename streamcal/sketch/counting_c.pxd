# The types with which counting_c.py is compiled; see docs/architecture.md.
cimport cython

@cython.locals(last=Py_ssize_t, i=Py_ssize_t, cell=int, label=int)
cpdef Py_ssize_t count_sorted(const int[::1] packed, int[::1] cells, long long[:, ::1] counts)

@cython.locals(end=double, half="long long", origin="long long", i=Py_ssize_t, score=double, key="long long")
cpdef pack(
    const double[::1] scores, const unsigned char[::1] labels, double[::1] ends, long long[::1] bits, int[::1] out
)
