# The types with which shift_c.py is compiled; see docs/architecture.md.
cimport cython

@cython.locals(start=Py_ssize_t, each=Py_ssize_t, i=Py_ssize_t, positive=double)
cpdef shift_by(const double[:] probabilities, const double[:] odds, const long long[::1] ends, double[:] out)
