# The types with which corrections_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math
from streamcal.engine cimport event_rules_c

cdef int _OFFSETS, _SLOPES, _SIZE
cdef const double[::1] _OFFSET_PRECISION, _SLOPE_PRECISION, _PRIOR_VARIANCE, _LOG_OFFSET_PRECISION, _LOG_SLOPE_PRECISION
cdef double _ODDS, _SURE, _NOTHING


@cython.final
cdef class BetweenSegments:
    cdef readonly double share, offset_precision, slope_precision
    cdef double[::1] _evidence

    @cython.locals(
        aa=double, ab=double, bb=double, a=double, b=double, old_aa=double, old_ab=double, old_bb=double,
        old_a=double, old_b=double,
    )
    cpdef replace(self, const float[::1] rows, Py_ssize_t old, Py_ssize_t new)
    @cython.locals(
        rest=double, cross=double, i=int, j=int, at=int, first=double, second=double, one=double, other=double,
        both=double, found=double, log_m=double, parts=double,
    )
    cdef void _add(self, double sign, double aa, double ab, double bb, double a, double b) noexcept
    @cython.locals(top=double, k=int, i=int, j=int, total=double, offset=double, slope=double, behind=double, part=double, factor=double)
    cpdef refresh(self)

cpdef double determinant(
    double offset_precision, double slope_precision, double aa, double ab, double bb
) noexcept


cdef double _SLOW, _FAST, _KEPT, _IN_FLIGHT, _FAST_PRECISION, _OWN, _AHEAD, _BEHIND, _VOTES, _MOST_VOTES, _MOST_LABELS, _LEAST
cdef int _LEAST_LABELS, _COLUMNS, _FAST_AT, _LOSSES_AT, _SHARED, _LABELS_AT


@cython.final
cdef class Corrections:
    cdef readonly BetweenSegments between
    cdef object _read_row
    cdef bint _some_stored
    cdef long long _count, _now
    cdef dict _places
    cdef float[::1] _rows
    cdef unsigned char[::1] _changed
    cdef long long[::1] _used
    cdef double[::1] _first
    cdef double _votes
    cdef double[::1] _terms

    cpdef double labels_at(self, Py_ssize_t place) noexcept
    @cython.locals(place=Py_ssize_t)
    cpdef Py_ssize_t find(self, name) except -1
    @cython.locals(place=Py_ssize_t)
    cdef Py_ssize_t _fetch(self, name) except -1
    @cython.locals(place=Py_ssize_t)
    cdef Py_ssize_t _add(self, name) except -1
    @cython.locals(place=Py_ssize_t)
    cpdef Py_ssize_t place(self, name) except -1
    @cython.locals(
        row=Py_ssize_t, between=BetweenSegments, first="double[::1]", aa=double, ab=double, bb=double,
        offset_score=double, slope_score=double, a=double, b=double, precision=double, pooled=double, slow=double,
        fast=double, own=double, total=double,
    )
    cpdef put_terms(self, Py_ssize_t place, double[::1] out, Py_ssize_t at, bint has_own)
    @cython.locals(t="double[::1]", slow=double, variance=double)
    cpdef read(self, Py_ssize_t place, double x, double own, double[::1] out, Py_ssize_t at)
    @cython.locals(
        row=Py_ssize_t, losses=Py_ssize_t, slow=double, fast=double, then_slow=double, then_fast=double,
        own=double, none=double, between=double, slow_saved=double, fast_saved=double, own_saved=double, p=double, curvature=double, part=double, step=double, weight=double,
        count=double,
    )
    cpdef learn(
        self, Py_ssize_t place, double x, int label, double[::1] read, Py_ssize_t at, double offset,
        double noise, double[::1] then, Py_ssize_t then_at, double then_offset
    )
    @cython.locals(data=bytes, names=list, size=Py_ssize_t, at=Py_ssize_t, place=Py_ssize_t)
    cpdef take_changed(self, dict changed, key, int field, Py_ssize_t most)
    @cython.locals(best=double, excess=double, least=double)
    cdef _set_losses(self, Py_ssize_t at, double slow, double fast, double own)
    @cython.locals(k=Py_ssize_t)
    cdef _share(self, Py_ssize_t row)
    @cython.locals(shared=double, k=Py_ssize_t)
    cdef _vote(self, double[::1] weights, Py_ssize_t at)

@cython.locals(odds=double)
cpdef double expit(double logit) noexcept

@cython.locals(p=double)
cpdef double logit_of(double probability) noexcept


@cython.locals(wrong=double)
cpdef double log_loss(double logit, int label) noexcept

@cython.locals(step=long)
cdef bint _due(long count) noexcept

@cython.locals(slow=double, fast=double, added=double)
cpdef double summed(double[::1] terms, Py_ssize_t at, double x, double own) noexcept

cpdef bytes as_bytes(str name)

cpdef as_name(bytes data)


cdef double _COMMON, _COMMON_PRECISION, _FARTHEST
cdef int _CENTRED, _READ, _TERMS, _NUMBER_BYTES, _SUMS
cdef double _WORTH, _NONE


@cython.final
cdef class Fields:
    cdef readonly list fields
    cdef readonly double served, labels
    cdef double _centre, _score, _information
    cdef long long _centred
    cdef long long[::1] _places
    cdef double[::1] _read, _then, _row
    cdef unsigned char[::1] _then_bytes
    cdef bytearray _out

    @cython.locals(x=double, read="double[::1]", i=Py_ssize_t, field=Corrections, out=list)
    cpdef list added(self, double logit, names)
    @cython.locals(
        logit=double, x=double, added=double, read="double[::1]", row="double[::1]", i=Py_ssize_t, at=Py_ssize_t,
        count=Py_ssize_t, field=Corrections, delta=double, data=bytes, values=bytes,
        out=cython.p_uchar,
    )
    cpdef bytes forecast(self, double pooled, names, own)
    @cython.locals(
        count=Py_ssize_t, field=Corrections, at=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, terms="double[::1]",
        places="long long[:, ::1]", made="double[::1]", pooled=double, added=double, logit=double, x=double,
        delta=double, engine=event_rules_c.ServedMap,
    )
    cpdef forecast_many(self, event_rules_c.ServedMap served, const double[:] scores, list codes, list names, list own)
    @cython.locals(
        logit=double, x=double, read="double[::1]", count=Py_ssize_t, before=double, noise=double,
        i=Py_ssize_t, at=Py_ssize_t, sizes=Py_ssize_t, size=Py_ssize_t, field=Corrections, common=double, now=double, p=double,
        curvature=double, others=double, their_noise=double, without=double,
    )
    cpdef learn(self, int label, bytes given)
    @cython.locals(
        sizes=Py_ssize_t, data=cython.p_uchar, left=Py_ssize_t, k=Py_ssize_t, i=Py_ssize_t,
    )
    cdef double _take(self, bytes given) except? -1.0
    @cython.locals(read="double[::1]", before=double, added=double, noise=double, i=Py_ssize_t, field=Corrections, common=double)
    cdef (double, double, double) _sums(self, double logit, double x)
    cdef double _x(self, double logit) noexcept

@cython.locals(known=dict, codes="long long[::1]", i=Py_ssize_t, code=Py_ssize_t)
cpdef codes_of(list values, list names)

@cython.locals(sizes=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, names=list, each=bytes)
cpdef list names_of(list given, Py_ssize_t count, Py_ssize_t field)

cdef Py_ssize_t size_of(const unsigned char* data, Py_ssize_t at) noexcept


cdef class SegmentRules(event_rules_c.EventRules):
    cdef public object segments
    cdef Fields _fields
    cdef bint _has_own
    cdef list _places

    @cython.locals(names=list, place=Py_ssize_t, forecast=bytes)
    cpdef tuple carry(self, kept, double score, double probability)
    cpdef learn_memo(self, double score, int label, memo)

cdef Py_ssize_t _LONGEST, _PLAIN

@cython.locals(text=str, size=Py_ssize_t)
cpdef name_of(value)
