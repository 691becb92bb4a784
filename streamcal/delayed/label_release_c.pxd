# The types with which label_release_c.py is compiled; see docs/architecture.md.
cimport cython
from libc cimport math
from streamcal.delayed.delay_laws_c cimport DelayLaws, completeness

cdef long long _ALL
cdef int _MOST_HELD, _NOWHERE, _NOTES, _FEW, _MANY_NOTES, _HELD, _FOUND, _CONFIRMED, _SCORE
cdef double _NO_TIME, _NEVER
cdef int _COHORT, _FIRST, _NOTED, _EXCLUDED
cdef double _COMPLETE, _ODD, _OLD, _USUAL, _POWER, _MORE_POWER, _ALIKE, _HARDLY, _MANY
cdef double _SURE, _LONG, _MOSTLY, _AHEAD, _PARTLY, _TIMES, _ERRORS


cdef class Held:
    cdef public double score, weight, time
    cdef public long long index, stands
    cdef public int label
    cdef public object memo


cdef class LabelRelease(DelayLaws):
    cdef public bint unsettled, late_class, excludes, _weighs
    cdef public object first
    cdef public double sum, squares, _moment, _came
    cdef public long long excluded, mistaken, held, noted
    cdef public list ready, loose, lists, _young
    cdef public long long[:, ::1] more

    cpdef long long beyond(self, int label) noexcept
    cpdef _push(self, Py_ssize_t cohort, Held held)
    @cython.locals(waiting=list, count=Py_ssize_t, held=Held)
    cpdef _pop(self, Py_ssize_t cohort, int label, long long most)
    @cython.locals(notes=list, place=Py_ssize_t, note=Held)
    cpdef _unnote(self, Py_ssize_t cohort, double score, long long index)
    cpdef _forget_scores(self, Py_ssize_t cohort)
    cpdef _thin(self)
    cpdef _join(self, Py_ssize_t j, Py_ssize_t i)
    cpdef _move(self, Py_ssize_t j, Py_ssize_t i)
    cpdef bint sampled(self) except -1
    @cython.locals(i=Py_ssize_t, age=double)
    cpdef long long complete_until(self) noexcept
    @cython.locals(i=Py_ssize_t)
    cpdef expect(self, double probability)
    @cython.locals(n="long long")
    cpdef begin(self)
    @cython.locals(cohort=Py_ssize_t)
    cpdef note(self, double score)
    @cython.locals(n="long long", i=Py_ssize_t)
    cpdef note_many(self, const double[:] scores)
    @cython.locals(was=bint)
    cpdef bint end(self) except -1
    @cython.locals(cohort=Py_ssize_t, arrival=double, likely=double, latest=double, mark=int)
    cpdef bint take(
        self, double score, int label, long long index, double weight, double came, double time, double expected,
        memo,
    ) except -1
    @cython.locals(pending="long long", noted="long long")
    cpdef _exclude(self, Py_ssize_t cohort, int label)
    cpdef _settle(self)
    cpdef _free_loose(self)
    @cython.locals(cohort=Py_ssize_t)
    cpdef _free_all(self)
    @cython.locals(label=int)
    cpdef _free_of(self, Py_ssize_t cohort)
    cpdef _free_first(self)
    @cython.locals(
        k=Py_ssize_t, first=Py_ssize_t, shares="double[:, ::1]", complete=double, i=Py_ssize_t, least=double, odd=bint, old=bint,
        label=int, told="long long", part=double, most="long long",
        by_chance=double,
    )
    cpdef _equalise(self)


cdef bint _unlike(double count, double expected) noexcept

cdef double _chance(long long number) noexcept
