# The types with which stepping_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.engine cimport event_rules_c
from streamcal.join cimport rules_c

cdef int _END, _EVENT, _EXPIRES, _DONE, _LABELLED
cdef Py_ssize_t _UNKNOWN, _REAL, _PAIR, _AHEAD, _PLAIN
cdef double _NO_TIME, _UNTIMED, _LATEST, _HEAVIEST

@cython.locals(expired=tuple, outcomes=tuple)
cpdef tuple step(event, rules_c.JoinRules join, engine_of, origin_of=*)
cpdef tuple emitted(tuple outcomes)
@cython.locals(begun=tuple)
cdef tuple _prediction(event, rules_c.JoinRules join, engine, origin_of)
cdef tuple _met(met, engine)
cdef tuple _label(event, rules_c.JoinRules join, engine_of, origin_of)
cdef tuple _labelled(event, rules_c.JoinRules join, engine_of, origin_of)


@cython.final
cdef class BlockSteps:
    cdef readonly object join
    cdef object _engine_of, _admits, _block, _sampler
    cdef rules_c.JoinRules _rows
    cdef event_rules_c.EventRules _engine
    cdef Py_ssize_t _code, _at, _predictions, _joins
    cdef long long _renumbered
    cdef long long[:, ::1] _whole
    cdef double[:, ::1] _real, _weights
    cdef bytes _ids
    cdef const long long[::1] _starts, _sizes
    cdef const double[::1] _scores, _times
    cdef const signed char[::1] _labels
    cdef const unsigned char[::1] _odd
    cdef const int[::1] _codes
    cdef bint _is_target
    cdef list _versions, _memos, _limits, _unasked
    cdef object _kept

    @cython.locals(
        rows=rules_c.JoinRules, ids=cython.p_uchar, is_target=bint, at=Py_ssize_t, ahead=Py_ssize_t, has_odd=bint, has_codes=bint,
        predictions=Py_ssize_t, joins=Py_ssize_t, run=Py_ssize_t, weights=tuple, version=cython.longlong, again=tuple,
        answered=event_rules_c.EventRules, why=int, score=double, label=int, size=Py_ssize_t, time=double,
        is_prediction=bint, row=Py_ssize_t, real=Py_ssize_t, engine=event_rules_c.EventRules, prediction_index=cython.longlong,
        served=event_rules_c.ServedMap, probability=double, weight=double, chance=double, asked=int, predicted_at=double, latest=double, code=Py_ssize_t, begun=tuple, learned=tuple,
    )
    cdef int _loop(self, Py_ssize_t end, emits) except -1
    @cython.locals(rows=rules_c.JoinRules, ids=cython.p_uchar, row=Py_ssize_t, weight=double)
    cdef int _is_asked(self, Py_ssize_t at) except -2
    cdef bint _find_engine(self, Py_ssize_t code) except -1

@cython.locals(seconds=double, is_prediction=bint, is_label=bint)
cpdef checked(event)
