# The types with which newton_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

@cython.locals(
    n=Py_ssize_t, block=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t,
    least=double, low=double, high=double, discount=double, a=double, b=double, aa=double, ab=double, bb=double,
    slope_a=double, slope_b=double, x=double, t=double, first=double, second=double, determinant=double,
    step_a=double, step_b=double, farthest=double, length=double,
)
cpdef learn_labels(
    double[:, ::1] fits, const double[::1] logits, const signed char[::1] labels, const double[::1] shares
)
