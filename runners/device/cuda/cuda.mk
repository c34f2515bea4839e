# cuda.mk: the CUDA backend, built in where nvcc is on PATH (`make CUDA=0`: without it); included by the Makefile. The runtime is linked statically and cuBLAS is
# found at run time, so the program starts where there is no driver. CUDA_ARCH chooses the GPUs; a kernel that spills registers is an error.
CUDA_NVCC ?= $(shell command -v nvcc)
CUDA ?= 0
CUDA_ARCH ?= 80 89 90a 100
ifeq ($(CUDA),1)
comma := ,
CUDA_HOME ?= $(abspath $(dir $(realpath $(CUDA_NVCC)))..)
CUDA_GENCODE = $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a)$(comma)code=sm_$(a))
NVCC_FLAGS = -std=c++17 -O3 -lineinfo -Werror all-warnings -Xptxas -warn-spills$(comma)-Werror -I. $(CUDA_GENCODE)
cuda_kernels := $(wildcard runners/device/cuda/*.cu)
objs_cuda := $(patsubst %.cu,$(BUILD)/%.cu.o,$(cuda_kernels))
src_runners/device := $(filter-out runners/device/cuda_absent.c,$(src_runners/device)) $(wildcard runners/device/cuda/*.c)
LIBS += -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt

$(BUILD)/runners/device/cuda/%.cu.o: runners/device/cuda/%.cu
	@mkdir -p $(@D)
	@echo '  NVCC $<'
	@$(if $(findstring ccache,$(CC)),ccache) $(CUDA_NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$(BUILD)/runners/device/cuda/%.o: runners/device/cuda/%.c
	@mkdir -p $(@D)
	@echo '  CC $<'
	@$(CC) -isystem $(CUDA_HOME)/include $(CFLAGS_ALL) -c $< -o $@
endif
