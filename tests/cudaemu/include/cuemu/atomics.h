// cuemu/atomics.h: atomic functions and fences. Real CPU atomics, relaxed as on a GPU: blocks run on several OS threads.
#pragma once
namespace cuemu {
template <size_t N> struct Uint;
template <> struct Uint<2> { using type = uint16_t; };
template <> struct Uint<4> { using type = uint32_t; };
template <> struct Uint<8> { using type = uint64_t; };
template <class T> struct Same { using type = T; };
template <class T, class F> inline T update(T *p, F f) { // compare-and-swap until f(old) went in; returns old
	using U = typename Uint<sizeof(T)>::type;
	U *q = (U *)p, o = __atomic_load_n(q, __ATOMIC_RELAXED), n;
	T old, next;
	do {
		memcpy((void *)&old, &o, sizeof o);
		next = f(old);
		memcpy(&n, (const void *)&next, sizeof n);
	} while (!__atomic_compare_exchange_n(q, &o, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return old;
}
} // namespace cuemu
#define CUEMU_ATOMIC(name, next)                                                                                                            \
	template <class T> inline T name(T *p, typename cuemu::Same<T>::type v) { return cuemu::update(p, [=](T o) -> T { return next; }); }      \
	template <class T> inline T name##_block(T *p, typename cuemu::Same<T>::type v) { return name(p, v); }                                    \
	template <class T> inline T name##_system(T *p, typename cuemu::Same<T>::type v) { return name(p, v); }
CUEMU_ATOMIC(atomicAdd, o + v)
CUEMU_ATOMIC(atomicSub, o - v)
CUEMU_ATOMIC(atomicExch, (void(o), v))
CUEMU_ATOMIC(atomicMax, o > v ? o : v)
CUEMU_ATOMIC(atomicMin, o < v ? o : v)
CUEMU_ATOMIC(atomicAnd, o &v)
CUEMU_ATOMIC(atomicOr, o | v)
CUEMU_ATOMIC(atomicXor, o ^ v)
CUEMU_ATOMIC(atomicInc, o >= v ? 0 : o + 1)
CUEMU_ATOMIC(atomicDec, o == 0 || o > v ? v : o - 1)
template <class T> inline T atomicCAS(T *p, typename cuemu::Same<T>::type expected, typename cuemu::Same<T>::type v) {
	return cuemu::update(p, [=](T o) -> T { return o == expected ? v : o; });
}
template <class T> inline T atomicCAS_block(T *p, typename cuemu::Same<T>::type e, typename cuemu::Same<T>::type v) { return atomicCAS(p, e, v); }
template <class T> inline T atomicCAS_system(T *p, typename cuemu::Same<T>::type e, typename cuemu::Same<T>::type v) { return atomicCAS(p, e, v); }
namespace cuemu {
void fence_device(); // fiber.cpp: a full fence, and for TSan an edge between all threads that fence
}
inline void __threadfence() { cuemu::fence_device(); }
inline void __threadfence_system() { cuemu::fence_device(); }
inline void __threadfence_block() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
