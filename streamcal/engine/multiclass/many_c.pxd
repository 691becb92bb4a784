# The types with which many_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.engine cimport event_rules_c
from streamcal.engine.multiclass.softmax_c cimport OnlineSoftmax, count, gather, mix, normalise, scale_each

cdef int _FEWEST


@cython.final
cdef class OneVsRest:
    cdef readonly long long observed
    cdef object _config, _recent
    cdef dict _engines, _begun
    cdef list _rules
    cdef long long[::1] _codes, _starts, _positives

    @cython.locals(
        i=Py_ssize_t, k=Py_ssize_t, place=Py_ssize_t, code=Py_ssize_t, rules=event_rules_c.EventRules,
    )
    cpdef forecast(self, const double[:, :] rows, const double[:, :] shared, double[:, :] out)
    @cython.locals(place=Py_ssize_t, code=Py_ssize_t, rules=event_rules_c.EventRules)
    cpdef observe(self, const double[:, :] rows)
    @cython.locals(
        i=Py_ssize_t, place=Py_ssize_t, code=Py_ssize_t, weight=double, rules=event_rules_c.EventRules,
    )
    cpdef learn(
        self, const double[:, :] rows, const long long[::1] codes, str domain, times=*, index=*,
        const double[:] weights=*
    )
    @cython.locals(
        count=cython.longlong, apart=cython.longlong, first=cython.longlong, turn=cython.longlong,
        rules=event_rules_c.EventRules,
    )
    cpdef take_turns(self, long long before, long long after)


cdef int _STEP, _BLOCK, _FIRST_STEP, _SCALED
cdef double _RECENT


cdef class ManyRules:
    cdef public long long labels
    cdef public bint sourced, _fresh
    cdef public OneVsRest _engines
    cdef public object _weights, _counts, _weighed
    cdef public Py_ssize_t _classes, _width
    cdef public bint _carries
    cdef Py_ssize_t _candidates, _shared, _waiting
    cdef list _of_score, _stacked
    cdef double[::1] _row
    cdef double[:, :, ::1] _made
    cdef double[:, ::1] _served, _target_counts, _pending
    cdef long long[::1] _pending_codes

    @cython.locals(made="double[:, :, ::1]", k=Py_ssize_t)
    cdef double[:, :, ::1] _made_of(self, const double[:, :] rows)
    @cython.locals(
        logs=Py_ssize_t, stacked=Py_ssize_t, composites=Py_ssize_t, m=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t,
    )
    cdef _put(self, const double[:, :] rows, double[:, :, ::1] out)
    cpdef candidates(self, const double[:, :] rows)
    cpdef mixture(self, const double[:, :] rows)
    cpdef mixed(self, const double[:, :, :] made)
    cpdef _learn_target(
        self, const double[:, :] rows, const long long[::1] codes, times, const double[:] weights, index,
        const double[:, :] carried
    )
    cpdef _judge(self, const double[:, :] rows, const long long[::1] codes)
    @cython.locals(end=Py_ssize_t)
    cdef _gather(
        self, const double[:, :] rows, const long long[::1] codes, const double[::1] shares,
        const double[:, :] carried
    )
    @cython.locals(waiting=Py_ssize_t, pending="double[:, ::1]", codes="long long[::1]")
    cdef _make_room(self, Py_ssize_t rows)
    @cython.locals(
        classes=Py_ssize_t, n=Py_ssize_t, told="double[:, ::1]", codes="long long[::1]", late=double,
        observed=cython.longlong, newest=double, index=double, i=Py_ssize_t, shares="double[::1]",
        start=Py_ssize_t, end=Py_ssize_t, x="double[:, :]", by_engines="double[:, :]", scaling=OnlineSoftmax,
    )
    cdef _step(self, earlier)
