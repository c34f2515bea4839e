/* vector_types.h (emulation): CUDA's small vector types, dim3 and the alignment words, for C and C++. Sizes and alignments are those of nvcc;
 * header_check.c compares them with NVIDIA's where its headers are at hand. */
#ifndef CUEMU_VECTOR_TYPES_H
#define CUEMU_VECTOR_TYPES_H

#define CUEMU_ALIGN(n) __attribute__((aligned(n)))
#define CUEMU_VECTORS(name, T, a2, a4)              \
	struct name##1 { T x; };                        \
	struct CUEMU_ALIGN(a2) name##2 { T x, y; };     \
	struct name##3 { T x, y, z; };                  \
	struct CUEMU_ALIGN(a4) name##4 { T x, y, z, w; }; \
	typedef struct name##1 name##1;                 \
	typedef struct name##2 name##2;                 \
	typedef struct name##3 name##3;                 \
	typedef struct name##4 name##4;

CUEMU_VECTORS(char, signed char, 2, 4)
CUEMU_VECTORS(uchar, unsigned char, 2, 4)
CUEMU_VECTORS(short, short, 4, 8)
CUEMU_VECTORS(ushort, unsigned short, 4, 8)
CUEMU_VECTORS(int, int, 8, 16)
CUEMU_VECTORS(uint, unsigned, 8, 16)
CUEMU_VECTORS(longlong, long long, 16, 16)
CUEMU_VECTORS(ulonglong, unsigned long long, 16, 16)
CUEMU_VECTORS(float, float, 8, 16)
CUEMU_VECTORS(double, double, 16, 16)

#ifdef __cplusplus
struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
	constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
#else
typedef struct dim3 {
	unsigned x, y, z;
} dim3;
#endif
#endif
