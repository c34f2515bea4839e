// cuemu/ptx.h: CPU twins of the PTX instructions that the backend's one PTX header wraps, with the register layouts of the PTX manual, so that the
// index arithmetic around them is really tested. Work of a whole warp is done once, by the lane that arrives last.
#pragma once
namespace cuemu {
void cp_async(void *shared, const void *global, size_t n, size_t zfill = 0);
void cp_async_commit();
void cp_async_wait(int keep);                                              // all but the newest `keep` groups of this thread have arrived
int bar_sync_(int id, int threads, Where where);
inline void bar_sync(int id, int threads, CUEMU_HERE) { bar_sync_(id, threads, CUEMU_WHERE); } // bar.sync id, threads: a barrier of part of the block
void bar_arrive_(int id, int threads, Where where);
inline void bar_arrive(int id, int threads, CUEMU_HERE) { bar_arrive_(id, threads, CUEMU_WHERE); } // bar.arrive: counted, does not wait

typedef float F4 __attribute__((vector_size(16))); // what a lane hands in and takes out, in registers
typedef uint32_t U4 __attribute__((vector_size(16)));
F4 mma_(F4 d, U4 a, uint64_t b, Where where);
U4 ldmatrix_(U4 row, int matrices, bool trans, Where where);

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: d += a b. Lane 4g+t holds of a rows g, g+8, columns 2t, 2t+1 (+8); of b column g, rows 2t, 2t+1
// (+8); of d rows g (d[0..1]) and g+8 (d[2..3]), columns 2t, 2t+1.
inline void mma_m16n8k16(float d[4], const uint32_t a[4], const uint32_t b[2], CUEMU_HERE) {
	F4 r = mma_(F4{d[0], d[1], d[2], d[3]}, U4{a[0], a[1], a[2], a[3]}, (uint64_t)b[1] << 32 | b[0], CUEMU_WHERE);
	for (int i = 0; i < 4; i++) d[i] = r[i];
}

// ldmatrix.sync.aligned.m8n8.x{1,2,4}[.trans].shared.b16: lane 8i+r names row r (16 bytes) of matrix i; the rows of lanes beyond the matrices are ignored.
// Each lane reads the row that it names, then takes its two elements of each matrix.
inline void ldmatrix(uint32_t *out, int matrices, const void *row, bool trans, Where where) {
	U4 part = {0, 0, 0, 0};
	if (lane() < 8u * matrices) {
		if ((uintptr_t)row & 15) trap("ldmatrix: the row is not aligned to 16 bytes");
		part = *(const U4 *)row;
	}
	U4 r = ldmatrix_(part, matrices, trans, where);
	for (int i = 0; i < matrices; i++) out[i] = r[i];
}
inline void ldmatrix_x1(uint32_t *r, const void *row, bool trans = false, CUEMU_HERE) { ldmatrix(r, 1, row, trans, CUEMU_WHERE); }
inline void ldmatrix_x2(uint32_t *r, const void *row, bool trans = false, CUEMU_HERE) { ldmatrix(r, 2, row, trans, CUEMU_WHERE); }
inline void ldmatrix_x4(uint32_t *r, const void *row, bool trans = false, CUEMU_HERE) { ldmatrix(r, 4, row, trans, CUEMU_WHERE); }
} // namespace cuemu

inline void __pipeline_memcpy_async(void *shared, const void *global, size_t n, size_t zfill = 0) { cuemu::cp_async(shared, global, n, zfill); }
inline void __pipeline_commit() { cuemu::cp_async_commit(); }
inline void __pipeline_wait_prior(int keep) { cuemu::cp_async_wait(keep); }
