// cuemu/warp.h: block barriers, warp barriers, shuffles, votes, matches and reductions. The meeting itself is in fiber.cpp; here is only what a
// lane hands in and takes out. A round of lanes with one mask: each leaves a value in its slot, the last one folds if there is something to fold.
#pragma once
namespace cuemu {
constexpr size_t SLOT = 64; // bytes a lane has in a round: handed-in value from offset 0, folded result from offset RESULT
constexpr size_t RESULT = 48;
struct Round {
	const unsigned char *buf; // 32 slots, valid until the lane's next round with this mask
	uint32_t mask;            // the lanes that took part
};
using Fold = void (*)(unsigned char *buf, uint32_t mask);
// Rendezvous of the lanes in mask. Values come and go in registers and only the shim, which is not instrumented, sees slots: no access of them is for TSan.
// Memory is ordered (seen by TSan alone) only by meet_fence, as __syncwarp does; a shuffle orders nothing on a GPU either.
void meet_fence(uint32_t mask, const char *what, Where where);
Round meet8(uint32_t mask, uint64_t value, const char *what, Where where, Fold fold);
uint64_t slot_word(Round r, unsigned lane, size_t at); // what a lane of the round handed in (at 0) or got (RESULT)
int sync_block(int predicate, Where where, const char *what); // all threads; returns the number with predicate
void fold_ballot(unsigned char *, uint32_t), fold_match(unsigned char *, uint32_t);
void fold_add(unsigned char *, uint32_t), fold_and(unsigned char *, uint32_t), fold_or(unsigned char *, uint32_t), fold_xor(unsigned char *, uint32_t);
void fold_min_s(unsigned char *, uint32_t), fold_max_s(unsigned char *, uint32_t), fold_min_u(unsigned char *, uint32_t), fold_max_u(unsigned char *, uint32_t);
template <class T> inline uint64_t word(T v) {
	uint64_t u = 0;
	memcpy(&u, (const void *)&v, sizeof v);
	return u;
}
template <class T> inline T take(Round r, unsigned lane, size_t at = 0) {
	uint64_t word = slot_word(r, lane & 31, at);
	T v;
	memcpy((void *)&v, &word, sizeof v);
	return v;
}
template <class T> constexpr bool shuffles = std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || (sizeof(T) == 2 && !std::is_arithmetic_v<T>));
} // namespace cuemu

inline void __syncthreads(CUEMU_HERE) { cuemu::sync_block(0, CUEMU_WHERE, "__syncthreads"); }
inline int __syncthreads_count(int p, CUEMU_HERE) { return cuemu::sync_block(p != 0, CUEMU_WHERE, "__syncthreads_count"); }
inline int __syncthreads_or(int p, CUEMU_HERE) { return cuemu::sync_block(p != 0, CUEMU_WHERE, "__syncthreads_or") != 0; }
inline int __syncthreads_and(int p, CUEMU_HERE) { return cuemu::sync_block(p == 0, CUEMU_WHERE, "__syncthreads_and") == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu, CUEMU_HERE) { cuemu::meet_fence(mask, "__syncwarp", CUEMU_WHERE); }

template <class T> inline T __shfl_sync(unsigned mask, T v, int src, int width = 32, CUEMU_HERE) {
	static_assert(cuemu::shuffles<T>);
	cuemu::Round r = cuemu::meet8(mask, cuemu::word(v), "__shfl_sync", CUEMU_WHERE, nullptr);
	return cuemu::take<T>(r, (cuemu::lane() & ~(width - 1)) | (src & (width - 1)));
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, CUEMU_HERE) {
	static_assert(cuemu::shuffles<T>);
	cuemu::Round r = cuemu::meet8(mask, cuemu::word(v), "__shfl_up_sync", CUEMU_WHERE, nullptr);
	int lane = (int)cuemu::lane(), src = lane - (int)delta;
	return src < (lane & ~(width - 1)) ? v : cuemu::take<T>(r, src);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, CUEMU_HERE) {
	static_assert(cuemu::shuffles<T>);
	cuemu::Round r = cuemu::meet8(mask, cuemu::word(v), "__shfl_down_sync", CUEMU_WHERE, nullptr);
	int lane = (int)cuemu::lane(), src = lane + (int)delta;
	return src > (lane | (width - 1)) ? v : cuemu::take<T>(r, src);
}
// A lane of an earlier segment may be read, one of a later segment not: then the own value comes back (as the instruction does).
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32, CUEMU_HERE) {
	static_assert(cuemu::shuffles<T>);
	cuemu::Round r = cuemu::meet8(mask, cuemu::word(v), "__shfl_xor_sync", CUEMU_WHERE, nullptr);
	int lane = (int)cuemu::lane(), src = lane ^ x;
	return src > (lane | (width - 1)) ? v : cuemu::take<T>(r, src);
}

#define CUEMU_FOLDED(T, mask, value, name, fold) \
	cuemu::take<T>(cuemu::meet8(mask, cuemu::word(value), name, CUEMU_WHERE, cuemu::fold), cuemu::lane(), cuemu::RESULT)
inline unsigned __ballot_sync(unsigned mask, int p, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, (unsigned)(p != 0), "__ballot_sync", fold_ballot); }
inline int __any_sync(unsigned mask, int p, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, (unsigned)(p != 0), "__any_sync", fold_ballot) != 0; }
inline int __all_sync(unsigned mask, int p, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, (unsigned)(p == 0), "__all_sync", fold_ballot) == 0; }
template <class T> inline unsigned __match_any_sync(unsigned mask, T v, CUEMU_HERE) {
	static_assert(sizeof(T) == 4 || sizeof(T) == 8);
	return CUEMU_FOLDED(unsigned, mask, v, "__match_any_sync", fold_match);
}
inline int __reduce_add_sync(unsigned mask, int v, CUEMU_HERE) { return CUEMU_FOLDED(int, mask, v, "__reduce_add_sync", fold_add); }
inline unsigned __reduce_add_sync(unsigned mask, unsigned v, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, v, "__reduce_add_sync", fold_add); }
inline int __reduce_min_sync(unsigned mask, int v, CUEMU_HERE) { return CUEMU_FOLDED(int, mask, v, "__reduce_min_sync", fold_min_s); }
inline unsigned __reduce_min_sync(unsigned mask, unsigned v, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, v, "__reduce_min_sync", fold_min_u); }
inline int __reduce_max_sync(unsigned mask, int v, CUEMU_HERE) { return CUEMU_FOLDED(int, mask, v, "__reduce_max_sync", fold_max_s); }
inline unsigned __reduce_max_sync(unsigned mask, unsigned v, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, v, "__reduce_max_sync", fold_max_u); }
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, v, "__reduce_and_sync", fold_and); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, v, "__reduce_or_sync", fold_or); }
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, CUEMU_HERE) { return CUEMU_FOLDED(unsigned, mask, v, "__reduce_xor_sync", fold_xor); }
// __activemask() is left out on purpose: code that needs it is wrong on Volta and later.
