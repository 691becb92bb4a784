# The types with which one_vs_rest_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.engine cimport event_rules_c

cdef int _FEWEST, _ONE


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
        i=Py_ssize_t, place=Py_ssize_t, code=Py_ssize_t, units=int, rules=event_rules_c.EventRules,
    )
    cpdef learn(
        self, const double[:, :] rows, const long long[::1] codes, str domain, times=*, index=*,
        const double[:] weights=*
    )
