# cudaemu.mk: builds the CUDA emulation shim and what runs over it; included by the Makefile. The same `.cu` files that nvcc builds are compiled here
# by g++ (or EMU_CXX), with the shim's headers in the place of NVIDIA's. Three builds: plain, tsan (race check), asan (bounds, alignment).
EMU_CXX ?= $(if $(findstring ccache,$(CC)),ccache )g++
EMU := $(BUILD)/cudaemu
EMU_DIR := tests/cudaemu
EMU_INC := -I$(EMU_DIR)/include -I.
comma := ,
# -fno-strict-aliasing: CUDA code reinterprets uint4 as bf16[8]. -fno-extern-tls-init (g++ only): `extern __shared__` would call a wrapper that is missing.
EMU_CXXFLAGS = -std=c++17 -O2 -g -march=native -fno-strict-aliasing $(if $(findstring clang,$(EMU_CXX)),,-fno-extern-tls-init) -pthread $(EMU_INC) \
	-Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-unused-parameter -MMD -MP
EMU_CFLAGS = $(EMU_INC) $(filter-out $(SAN),$(CFLAGS_ALL))
emu_shim := $(filter-out $(EMU_DIR)/test_%,$(wildcard $(EMU_DIR)/*.cpp))
# The backend, but for the files that look for cuBLAS and cuDNN at run time: link_cublas.c and link_cudnn.c name the shim's.
emu_backend := $(wildcard runners/device/cuda/*.cu) $(filter-out $(addprefix runners/device/cuda/,blas.c dnn_load.c dnn_absent.c),$(wildcard runners/device/cuda/*.c)) \
	$(EMU_DIR)/link_cublas.c $(EMU_DIR)/link_cudnn.c
emu_shim_tests := $(patsubst $(EMU_DIR)/%.cu,%,$(wildcard $(EMU_DIR)/test_*.cu))
emu_backend_tests := $(patsubst $(EMU_DIR)/%.c,%,$(wildcard $(EMU_DIR)/test_backend_*.c))
emu_archives = $(foreach m,$(below_runners),$(call archive,$(m)))
emu_host := $(BUILD)/version.o $(BUILD)/resources.o
# The host side of devices again in each variant: TSan must see how its threads synchronise.
emu_device := $(filter-out runners/device/cuda_absent.c,$(wildcard runners/device/*.c))
EMU_LIBS = $(LIBS)

# $(1): folder of the variant, $(2): flags of the shim (never instrumented), $(3): sanitizer flags of kernels and hosts
define emu_variant
$(EMU)$(1)/libcudaemu.a: $(patsubst $(EMU_DIR)/%.cpp,$(EMU)$(1)/shim/%.o,$(emu_shim))
	@rm -f $$@
	@ar rcs $$@ $$^
$(EMU)$(1)/libkvbcuda.a: $(patsubst %,$(EMU)$(1)/%.o,$(emu_backend) $(if $(1),$(emu_device)))
	@rm -f $$@
	@ar rcs $$@ $$^
$(EMU)$(1)/shim/%.o: $(EMU_DIR)/%.cpp
	@mkdir -p $$(@D)
	@echo '  CXX $$<$(if $(1), ($(patsubst /%,%,$(1))))'
	@$$(EMU_CXX) $$(EMU_CXXFLAGS) $(2) -c $$< -o $$@
$(EMU)$(1)/%.cu.o: %.cu
	@mkdir -p $$(@D)
	@echo '  CXX $$<$(if $(1), ($(patsubst /%,%,$(1))))'
	@$$(EMU_CXX) $$(EMU_CXXFLAGS) $(3) -x c++ -include cuda_runtime.h -c $$< -o $$@
$(EMU)$(1)/%.c.o: %.c
	@mkdir -p $$(@D)
	@echo '  CC $$< (emulation$(patsubst /%,$(comma) %,$(1)))'
	@$$(CC) $$(EMU_CFLAGS) $(3) -c $$< -o $$@
$(patsubst %,$(EMU)$(1)/%,$(emu_shim_tests)): $(EMU)$(1)/%: $(EMU)$(1)/$(EMU_DIR)/%.cu.o $(EMU)$(1)/libcudaemu.a
	@echo '  LD $$@'
	@$$(EMU_CXX) $(3) -o $$@ $$^ -lcmocka -lpthread -lm
$(patsubst %,$(EMU)$(1)/%,$(emu_backend_tests)): $(EMU)$(1)/%: $(EMU)$(1)/$(EMU_DIR)/%.c.o $(EMU)$(1)/$(EMU_DIR)/filter.c.o $(EMU)$(1)/libkvbcuda.a $(EMU)$(1)/libcudaemu.a $(emu_host) $(emu_archives)
	@echo '  LD $$@'
	@$$(EMU_CXX) $(3) -o $$@ $$(filter %.o,$$^) -Wl,-u,backend_cuda $(EMU)$(1)/libkvbcuda.a -Wl,--start-group $(emu_archives) -Wl,--end-group $(EMU)$(1)/libkvbcuda.a \
		$(EMU)$(1)/libcudaemu.a -lcmocka $(EMU_LIBS)
$(EMU)$(1)/races: $(EMU)$(1)/$(EMU_DIR)/races.cu.o $(EMU)$(1)/libcudaemu.a
	@echo '  LD $$@'
	@$$(EMU_CXX) $(3) -o $$@ $$^ -lpthread
endef
$(eval $(call emu_variant,,,))
$(eval $(call emu_variant,/tsan,-DCUEMU_TSAN,-fsanitize=thread))
$(eval $(call emu_variant,/asan,-DCUEMU_ASAN,-fsanitize=address$(comma)bounds$(comma)alignment -fno-sanitize-recover=all))
.PRECIOUS: $(EMU)/%.o

emu_tests := $(patsubst %,$(EMU)/%,$(emu_shim_tests) $(emu_backend_tests))
emu_tsan := $(patsubst %,$(EMU)/tsan/%,races $(emu_backend_tests))
# Scripts of the emulation find compilers, flags and objects in the environment.
emu_env = KVB_EMU='$(EMU)' EMU_CXX='$(EMU_CXX)' EMU_CC='$(CC)' EMU_CXXFLAGS='$(EMU_CXXFLAGS)' EMU_CFLAGS='$(EMU_CFLAGS)' EMU_OBJECTS='$(emu_host)' \
	EMU_ARCHIVES='$(emu_archives)' EMU_LIBS='$(EMU_LIBS)'
# What `make test` runs of it; where there is no C++ compiler, one skipped test that says so.
emu_scripts := $(EMU_DIR)/test_headers.sh $(EMU_DIR)/test_hopper.sh $(EMU_DIR)/test_races.sh $(EMU_DIR)/test_tsan.sh $(EMU_DIR)/test_mutants.sh $(EMU_DIR)/test_run.sh $(EMU_DIR)/test_offload.sh \
	$(EMU_DIR)/test_cudnn.sh $(EMU_DIR)/test_cudnn_mutants.sh $(EMU_DIR)/test_gpu_bench.sh
ifeq ($(shell command -v g++),)
emu_run := $(EMU_DIR)/skipped.sh
emu_built :=
else
emu_run := --together $(emu_tests) --alone $(emu_scripts)
emu_built := $(emu_tests) $(emu_tsan) $(EMU)/kvbench $(EMU)/wide_model $(EMU)/gpu_bench $(BUILD)/plant
endif
# The whole program with an emulated GPU, for trying failures: CUEMU_MEM=64M CUEMU_FAIL=launch:40:sticky $(EMU)/kvbench run PLAN --device cuda
$(EMU)/kvbench: $(BUILD)/harness/main.o $(emu_host) $(EMU)/libkvbcuda.a $(EMU)/libcudaemu.a $(archives)
	@echo '  LD $@'
	@$(EMU_CXX) -o $@ $(filter %.o,$^) -Wl,-u,backend_cuda $(EMU)/libkvbcuda.a -Wl,--start-group $(archives) -Wl,--end-group $(EMU)/libkvbcuda.a \
		$(EMU)/libcudaemu.a $(EMU_LIBS)
# Models for test_offload.sh.
$(EMU)/wide_model: $(EMU)/$(EMU_DIR)/wide_model.c.o $(call archive,runners/model) $(call archive,harness/base)
	@echo '  LD $@'
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)
# The bench of tests/gpu.sh for test_gpu_bench.sh: its shapes stand in the place of the archives' models.
$(EMU)/gpu_bench: $(EMU)/tests/gpu/bench.c.o $(EMU)/tests/gpu/shapes.c.o $(EMU)/libkvbcuda.a $(EMU)/libcudaemu.a $(emu_archives)
	@echo '  LD $@'
	@$(EMU_CXX) -o $@ $(filter %.o,$^) -Wl,-u,backend_cuda $(EMU)/libkvbcuda.a -Wl,--start-group $(emu_archives) -Wl,--end-group $(EMU)/libkvbcuda.a \
		$(EMU)/libcudaemu.a $(EMU_LIBS)
cudaemu-lib: $(EMU)/libcudaemu.a $(EMU)/tsan/libcudaemu.a
cudaemu-built: $(emu_built)
# Builds the backend against the shim and runs its tests and the shim's.
cudaemu:
	@$(MAKE) --no-print-directory -j$(shell nproc) cudaemu-built
	@$(emu_env) tests/run.sh $(emu_run)
# Takes out one barrier, atomic or wait at a time and shows which run notices; of some files alone: make mutants MUTANTS='offload.c scores.c'
mutants:
	@$(MAKE) --no-print-directory -j$(shell nproc) cudaemu-built
	@$(emu_env) $(EMU_DIR)/mutants.sh $(MUTANTS)
.PHONY: cudaemu cudaemu-lib cudaemu-built mutants
