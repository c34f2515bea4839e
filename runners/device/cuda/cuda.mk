# cuda.mk: the CUDA backend, built into the program where nvcc is (on PATH or in /usr/local/cuda; `make CUDA=0`: without it, and sanitizers and fuzzers are);
# included by the Makefile. The runtime is linked statically and cuBLAS is found at run time, so the program starts where there is no driver. CUDA_ARCH chooses the GPUs
# (90a, not 90: attention by wgmma); a kernel that spills registers is an error. Tests link cuda_absent.c in its place: they see CUDA through tests/cudaemu.
CUDA_NVCC ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA ?= $(if $(SAN),0,$(if $(CUDA_NVCC),1,0))
CUDA_ARCH ?= 80 89 90a 100
ifeq ($(CUDA),1)
comma := ,
CUDA_HOME ?= $(abspath $(dir $(realpath $(CUDA_NVCC)))..)
CUDA_GENCODE = $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a)$(comma)code=sm_$(a))
NVCC_FLAGS = -std=c++17 -O3 -Werror all-warnings -Xptxas -warn-spills$(comma)-Werror -I. $(if $(filter 90a,$(CUDA_ARCH)),-DKVB_SM90A) $(CUDA_GENCODE)
# cuDNN's attention is built in where its header is: beside CUDA's, or in CUDNN_HOME (`make CUDNN=0`: without it).
CUDNN_HOME ?= $(firstword $(patsubst %/include/cudnn_graph.h,%,$(wildcard $(CUDA_HOME)/include/cudnn_graph.h /usr/include/cudnn_graph.h)))
CUDNN ?= $(if $(CUDNN_HOME),1,0)
cuda_sources := $(filter-out $(if $(filter 1,$(CUDNN)),%/dnn_absent.c,%/dnn.c %/dnn_graph.c %/dnn_load.c),$(wildcard runners/device/cuda/*.c))
cuda_archive := $(BUILD)/lib/cuda.a
cuda_objects := $(patsubst %,$(BUILD)/%.o,$(wildcard runners/device/cuda/*.cu)) $(patsubst %.c,$(BUILD)/%.o,$(cuda_sources))
cuda_link = -Wl,-u,backend_cuda $(cuda_archive) # before the archives, whose backend_cuda is then not looked for
cuda_libs = -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt

$(cuda_archive): $(cuda_objects)
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $^
$(BUILD)/runners/device/cuda/%.cu.o: runners/device/cuda/%.cu
	@mkdir -p $(@D)
	@echo '  NVCC $<'
	@$(if $(findstring ccache,$(CC)),ccache) $(CUDA_NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$(BUILD)/runners/device/cuda/%.o: runners/device/cuda/%.c
	@mkdir -p $(@D)
	@echo '  CC $<'
	@$(CC) -isystem $(CUDA_HOME)/include $(if $(CUDNN_HOME),-isystem $(CUDNN_HOME)/include) $(CFLAGS_ALL) -c $< -o $@
endif
