# The types with which platt_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

@cython.locals(
    end=double, half="long long", origin="long long", i=Py_ssize_t, above=bint, score=double, rest=double,
)
cpdef cell_logits(const int[::1] cells, int level, double[::1] out, long long[::1] bits)
