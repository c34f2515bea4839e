/* mutants.h: what mutants.sh puts in the place of a barrier, an atomic or a wait: the same call with `no_` before its name does
 * nothing, or does it without being atomic. Included before every mutated file, C and CUDA. */
#ifndef KVB_MUTANTS_H
#define KVB_MUTANTS_H

#define no_cudaStreamWaitEvent(...) cudaSuccess
#define no_cudaEventSynchronize(...) cudaSuccess
#define no_cudaStreamSynchronize(...) cudaSuccess
#define no_cudaDeviceSynchronize(...) cudaSuccess
#define no_cuda_queue_sync(...) 0
#define no_queue_event_wait(...) 0
#define no_queue_sync(...) 0
#define no_pthread_join(...) 0
#define no_bar_sync(...) ((void)0)
#define no_bar_arrive(...) ((void)0)
#define no_mbar_init(...) ((void)0)
#define no_mbar_arrive(...) ((void)0)
#define no_mbar_arrive_expect(bar, bytes) mbar_arrive(bar) /* of no bytes */
#define no_mbar_wait(...) ((void)0)
#define no_map_acquire(...) ((void)0)
#define no___syncthreads(...) ((void)0)
#define no___syncwarp(...) ((void)0)
#define no___threadfence(...) ((void)0)

#ifdef __cplusplus
template <int KEEP> static inline void no_copies_wait()
{
}
#define PLAIN(name, next)                                                                                                        \
	template <class T, class V> static inline T no_##name(T *p, V v)                                                         \
	{                                                                                                                        \
		T o = *p;                                                                                                        \
		*p = next;                                                                                                       \
		return o;                                                                                                        \
	}
PLAIN(atomicAdd, (T)(o + v))
PLAIN(atomicSub, (T)(o - v))
PLAIN(atomicMax, (o > (T)v ? o : (T)v))
PLAIN(atomicMin, (o < (T)v ? o : (T)v))
PLAIN(atomicOr, (T)(o | v))
PLAIN(atomicAnd, (T)(o &v))
PLAIN(atomicExch, (void(o), (T)v))
#undef PLAIN
#endif
#endif
