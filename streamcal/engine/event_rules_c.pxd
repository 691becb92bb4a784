# The types with which event_rules_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.delayed cimport label_release_c
from streamcal.maps cimport fits_c
from streamcal.mixture cimport forecasts_c
from streamcal.sketch cimport counts_c

cdef double _NEVER, _NO_TIME
cdef long long _AT_ONCE
cdef int _INDEX_BYTES


@cython.final
cdef class ClassPriors:
    cdef counts_c.LabelBuffer _source, _target
    cdef readonly object tracker
    cdef public object matched
    cdef object _prior, _rate

    @cython.locals(labels=counts_c.LabelBuffer, positives=double, n=double)
    cpdef of(self, str domain)
    cpdef known_odds(self)
    cpdef tuple weights(self)


@cython.final
cdef class ServedMap:
    cdef ClassPriors _priors
    cdef tuple _weights
    cdef object _mixed, _base
    cdef forecasts_c.MixedSteps _mixture
    cdef fits_c.StepFunction _steps
    cdef fits_c.LinearFunction _line
    cdef public bint shifts
    cdef public long long version

    cpdef tuple weights_now(self)
    cpdef forget_weights(self)
    @cython.locals(value=double)
    cpdef predict_one(self, score)
    @cython.locals(
        probability=double, mixture=forecasts_c.MixedSteps, steps=fits_c.StepFunction, line=fits_c.LinearFunction
    )
    cpdef double forecast(self, double score) except? -1.0


cdef class EventRules:
    cdef public counts_c.LabelBuffer _source, _target
    cdef public counts_c.ScoreBuffer _unlabelled
    cdef public ServedMap served
    cdef public label_release_c.LabelRelease release
    cdef public double _latest, interval
    cdef public long long _source_stop, _target_stop, limits_stop
    cdef public bint _delayed
    cdef public bint carries
    cdef public bint _in_turn
    cdef public object _complete, limits
    cdef public object config, _priors, _versions
    cdef object _key

    @cython.locals(score=double, prediction_index=cython.longlong, probability=double)
    cpdef tuple answer(self, event)
    cpdef tuple carry(self, kept, double score, double probability)
    cpdef form_limits(self)
    cpdef learn_memo(self, double score, int label, memo)
    @cython.locals(version=cython.longlong, begins=bint, release=label_release_c.LabelRelease)
    cpdef tuple observe_one(self, double score, double time=*)
    @cython.locals(release=label_release_c.LabelRelease, some=bint)
    cdef bint _count(self, double score, double time) except -1
    cpdef _begin_cohorts(self)
    cpdef take_turn(self)
    cpdef tuple learn(self, joined)
    @cython.locals(due=bint, held=bint, version=cython.longlong, alarms=Py_ssize_t, came=double)
    cpdef tuple learn_label(
        self, double score, int label, bint is_target, double time, long long prediction_index, double weight=*, memo=*
    )
    @cython.locals(labels=counts_c.LabelBuffer, stop=cython.longlong)
    cdef bint _is_due(self, bint is_target) except -1
    @cython.locals(release=label_release_c.LabelRelease, expected=double)
    cdef bint _waits(
        self, double score, int label, long long prediction_index, double weight, double came, double time, memo
    ) except -1
    @cython.locals(release=label_release_c.LabelRelease, size=Py_ssize_t, passes="unsigned char[::1]", i=Py_ssize_t, time=double)
    cpdef _pass_many(
        self, const double[:] scores, const signed char[:] labels, const double[:] times,
        const long long[:] prediction_index, const double[:] weights,
    )
    cpdef _learn_released(self)
    @cython.locals(is_target=bint, index=cython.longlong)
    cpdef bint learn_usual(self, score, label, domain, time, weight, memo, positive) except -1
    @cython.locals(is_target=bint, index=cython.longlong, came=double)
    cpdef learn_one(self, double score, int label, str domain, time, prediction_index, double weight, memo=*)
    @cython.locals(labels=counts_c.LabelBuffer, n=cython.longlong)
    cdef _learn(self, double score, int label, bint is_target, time, long long index, double weight)
