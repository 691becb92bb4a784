# The types with which isotonic_c.py is compiled; see docs/architecture.md.
cimport cython

@cython.locals(
    m=Py_ssize_t, last=Py_ssize_t, i=Py_ssize_t, mean=double, size=double, start=Py_ssize_t, total=double,
)
cpdef Py_ssize_t pool(double[::1] means, double[::1] sizes, long long[::1] starts)
