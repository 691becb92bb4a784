# The types with which counting_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.sketch.keys_c cimport key_of

@cython.locals(last=Py_ssize_t, i=Py_ssize_t, cell=int, label=int)
cpdef Py_ssize_t count_sorted(const int[::1] packed, int[::1] cells, long long[:, ::1] counts)

@cython.locals(i=Py_ssize_t)
cpdef pack(const double[::1] scores, const unsigned char[::1] labels, int[::1] out)
