// cuemu/ptx.h: CPU twins of the PTX instructions that the backend's one PTX header wraps, with the register layouts of the PTX manual, so that the
// index arithmetic around them is really tested. Work of a whole warp is done once, by the lane that arrives last.
#pragma once
namespace cuemu {
void fold_mma_bf16(unsigned char *buf, uint32_t mask);
void cp_async(void *shared, const void *global, size_t n, size_t zfill = 0);
void cp_async_commit();
void cp_async_wait(int keep);                                              // all but the newest `keep` groups of this thread have arrived
int bar_sync_(int id, int threads, Where where);
inline void bar_sync(int id, int threads, CUEMU_HERE) { bar_sync_(id, threads, CUEMU_WHERE); } // bar.sync id, threads: a barrier of part of the block
void bar_arrive_(int id, int threads, Where where);
inline void bar_arrive(int id, int threads, CUEMU_HERE) { bar_arrive_(id, threads, CUEMU_WHERE); } // bar.arrive: counted, does not wait

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: d += a b. Lane 4g+t holds of a rows g, g+8, columns 2t, 2t+1 (+8); of b column g, rows 2t, 2t+1
// (+8); of d rows g (d[0..1]) and g+8 (d[2..3]), columns 2t, 2t+1. Slot: a 0..15, b 16..23, d 32..47; result from RESULT.
inline void mma_m16n8k16(float d[4], const uint32_t a[4], const uint32_t b[2], CUEMU_HERE) {
	struct {
		uint32_t a[4], b[2], pad[2];
		float d[4];
	} v;
	memcpy(v.a, a, 16);
	memcpy(v.b, b, 8);
	memcpy(v.d, d, 16);
	static_assert(sizeof v == RESULT);
	Round r = meet(0xffffffffu, &v, sizeof v, "mma.sync", CUEMU_WHERE, false, fold_mma_bf16);
	memcpy(d, r.buf + lane() * SLOT + RESULT, 16);
}

// ldmatrix.sync.aligned.m8n8.x{1,2,4}[.trans].shared.b16: lane 8i+r names row r (16 bytes) of matrix i; the rows of lanes beyond the matrices are ignored.
// Each lane reads the row that it names, then takes its two elements of each matrix out of the slots.
inline void ldmatrix_(uint32_t *out, int matrices, const void *row, bool trans, Where where) {
	unsigned l = lane();
	uint32_t part[4] = {0, 0, 0, 0};
	if (l < 8u * matrices) {
		if ((uintptr_t)row & 15) trap("ldmatrix: the row is not aligned to 16 bytes");
		for (int i = 0; i < 4; i++) part[i] = ((const uint32_t *)row)[i];
	}
	Round r = meet(0xffffffffu, part, 16, "ldmatrix", where, false, nullptr);
	for (int i = 0; i < matrices; i++) {
		uint16_t half[2];
		for (unsigned h = 0; h < 2; h++) {
			unsigned rr = trans ? 2 * (l & 3) + h : l >> 2, cc = trans ? l >> 2 : 2 * (l & 3) + h;
			memcpy(&half[h], r.buf + (8 * i + rr) * SLOT + 2 * cc, 2);
		}
		out[i] = (uint32_t)half[1] << 16 | half[0];
	}
}
inline void ldmatrix_x1(uint32_t *r, const void *row, bool trans = false, CUEMU_HERE) { ldmatrix_(r, 1, row, trans, CUEMU_WHERE); }
inline void ldmatrix_x2(uint32_t *r, const void *row, bool trans = false, CUEMU_HERE) { ldmatrix_(r, 2, row, trans, CUEMU_WHERE); }
inline void ldmatrix_x4(uint32_t *r, const void *row, bool trans = false, CUEMU_HERE) { ldmatrix_(r, 4, row, trans, CUEMU_WHERE); }
} // namespace cuemu

inline void __pipeline_memcpy_async(void *shared, const void *global, size_t n, size_t zfill = 0) { cuemu::cp_async(shared, global, n, zfill); }
inline void __pipeline_commit() { cuemu::cp_async_commit(); }
inline void __pipeline_wait_prior(int keep) { cuemu::cp_async_wait(keep); }
