# The types with which updates_c.py is compiled; see docs/architecture.md.
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

@cython.locals(
    block=Py_ssize_t, rate=double, early=double, share=double, lead_rate=double, first_trust=double,
    kept_a_label=double, coin=double, least_loss=double, least_trust=double, candidates=Py_ssize_t,
    n=Py_ssize_t, kinds=Py_ssize_t, lost="double[::1]", each="double[:, ::1]", start=Py_ssize_t, end=Py_ssize_t, known=double,
    i=Py_ssize_t, k=Py_ssize_t, product=double, least_mean=double, returned=double, kept=double,
    tracker=Py_ssize_t, kind=Py_ssize_t, mean=double, total=double, own=double, least=double, loss=double,
    eta=double, moved=double, back=double, ahead=double, trusted=double,
)
cpdef double move(
    double[:, ::1] served, double[::1] sums, double lead, const double[:, :, :] losses,
    const double[:, :] tracked, const double[::1] counted, const double[::1] first,
    const cython.uchar[::1] asleep, double earlier, rates
)

@cython.locals(most=double)
cpdef double trust(double lead)
