# kvbench: `make demo` and `make test` set up a fresh Debian machine by themselves; `make` alone prints this help.
#
#   make demo     install what is missing, build, run the demo plan on the embedded models, write results/demo.{db,html}
#   make test     install what is missing, build, run all tests
#   make all      build ./kvbench          make bench    tokens/s, GEMM and attention as fractions of the peak
#   make fuzz     60 s a fuzz target       make asan     all tests under ASan + UBSan
#   make tsan     threaded tests under TSan
#   make cudaemu  the CUDA backend's tests over the emulation (part of `make test`)
#   make mutants  takes one barrier, atomic or wait at a time out of the CUDA backend and shows what notices
#   make long     the 170k-token context on the embedded target (some minutes, not part of `make test`)
#   make real     tables of two real models from their GGUF files: MODELS=folder
#   make format   clang-format             make clean

.DEFAULT_GOAL := help
BUILD ?= build/release
CC ?= gcc
OPT ?= -O2 -g
WARN := -Wall -Wextra -Werror -Wno-missing-field-initializers
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE -pthread -fno-math-errno -ffp-contract=off $(OPT) $(WARN) $(SAN) -I. -MMD -MP
LIBS := -ljansson -lsqlite3 -lpcre2-8 -lutf8proc -lcrypto -lzip -lcurl -lpthread -lm

# One archive a folder. A test of a folder links that folder's archive and what stands below it (order matters to ld).
MODULES := harness report results tasks runners runners/methods runners/proxykv runners/mapper runners/lkv runners/forward runners/device runners/model harness/base
src_harness := $(filter-out harness/main.c,$(wildcard harness/*.c))
src_report := $(wildcard report/*.c)
src_results := $(wildcard results/*.c)
src_tasks := $(wildcard tasks/*.c tasks/metrics/*.c tasks/longbench/*.c tasks/scbench/*.c tasks/ruler/*.c)
src_runners := $(wildcard runners/*.c)
src_runners/methods := $(wildcard runners/methods/*.c)
src_runners/proxykv := $(wildcard runners/proxykv/*.c)
src_runners/mapper := $(wildcard runners/mapper/*.c)
src_runners/lkv := $(wildcard runners/lkv/*.c)
src_runners/forward := $(wildcard runners/forward/*.c)
src_runners/device := $(wildcard runners/device/*.c runners/device/cpu/*.c)
src_runners/model := $(wildcard runners/model/*.c)
src_harness/base := $(wildcard harness/base/*.c)
include runners/device/cuda/cuda.mk

# Kernels are built once for each instruction set and chosen at run time: the same source, KVB_ISA names the path.
ISAS := avx2 avx512 avx512bf16 amx
flags_avx2 := -mavx2 -mfma -mf16c
flags_avx512 := $(flags_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
flags_avx512bf16 := $(flags_avx512) -mavx512bf16 -mavx512vbmi
flags_amx := $(flags_avx512bf16) -mamx-tile -mamx-bf16
# Products of bf16 have kernels of their own: all but the linear layers is the same source for both units.
blocks := $(addprefix runners/device/cpu/blocks/,attention.c pack.c reduce.c table.c)
kernels_avx2 := $(wildcard runners/device/cpu/kernels/*.c)
kernels_avx512 := $(kernels_avx2)
kernels_avx512bf16 := $(blocks) runners/device/cpu/blocks/linear_dot.c
kernels_amx := $(blocks) runners/device/cpu/blocks/linear_amx.c
# LKV's few vector loops, likewise; `plain` has no flags of a set. Multiplications and additions may fuse here.
lkv_kernels := $(foreach i,plain avx2 avx512 amx,$(BUILD)/runners/lkv/kernels/dense.$(i).o)
$(lkv_kernels): $(BUILD)/runners/lkv/kernels/dense.%.o: runners/lkv/kernels/dense.c
	@mkdir -p $(@D)
	@echo '  CC $< ($*)'
	@$(CC) $(CFLAGS_ALL) $(flags_$*) -O3 -ffp-contract=fast -DKVB_ISA=$* -c $< -o $@

# The mapper's arithmetic is compiled for float (the program) and double (its ridge regression, the tests of its gradients); its kernels for each set too.
type_f32 := float
type_f64 := double
mapper_objects := $(foreach r,f32 f64,$(patsubst %.c,$(BUILD)/%.$(r).o,$(wildcard runners/mapper/real/*.c)) \
	$(foreach i,plain avx2 avx512,$(patsubst %.c,$(BUILD)/%.$(r).$(i).o,$(wildcard runners/mapper/kernels/*.c))))
define mapper_rule
$(BUILD)/runners/mapper/real/%.$(1).o: runners/mapper/real/%.c
	@mkdir -p $$(@D)
	@echo '  CC $$< ($(1))'
	@$(CC) $(CFLAGS_ALL) -O3 -DKVB_REAL=$(type_$(1)) -DKVB_REAL_NAME=$(1) -c $$< -o $$@
endef
define mapper_kernel_rule
$(BUILD)/runners/mapper/kernels/%.$(1).$(2).o: runners/mapper/kernels/%.c
	@mkdir -p $$(@D)
	@echo '  CC $$< ($(1) $(2))'
	@$(CC) $(CFLAGS_ALL) $(flags_$(2)) -O3 -ffp-contract=fast -DKVB_REAL=$(type_$(1)) -DKVB_REAL_NAME=$(1) -DKVB_ISA=$(2) -c $$< -o $$@
endef
$(foreach r,f32 f64,$(eval $(call mapper_rule,$(r)))$(foreach i,plain avx2 avx512,$(eval $(call mapper_kernel_rule,$(r),$(i)))))

archive = $(BUILD)/lib/$(subst /,_,$(1)).a
objects = $(patsubst %.c,$(BUILD)/%.o,$(src_$(1)))
objs_kernels := $(foreach i,$(ISAS),$(patsubst %.c,$(BUILD)/%.$(i).o,$(kernels_$(i))))
archives := $(foreach m,$(MODULES),$(call archive,$(m)))

help:
	@sed -n 's/^#   //p' Makefile

all: kvbench
kvbench: $(BUILD)/kvbench
	cp -f $< $@

$(BUILD)/kvbench: $(BUILD)/harness/main.o $(BUILD)/version.o $(BUILD)/resources.o $(archives) $(cuda_archive)
	@echo '  LD $@'
	@$(CC) $(CFLAGS_ALL) -o $@ $(filter %.o,$^) $(cuda_link) -Wl,--start-group $(archives) -Wl,--end-group $(LIBS) $(cuda_libs)

define archive_rule
$(call archive,$(1)): $(call objects,$(1)) $(if $(filter runners/device,$(1)),$(objs_kernels)) $(if $(filter runners/lkv,$(1)),$(lkv_kernels)) $(if $(filter runners/mapper,$(1)),$(mapper_objects))
	@mkdir -p $$(@D)
	@rm -f $$@
	@ar rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call archive_rule,$(m))))

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo '  CC $<'
	@$(CC) $(CFLAGS_ALL) -c $< -o $@

define kernel_rule
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	@echo '  CC $$< ($(1))'
	@$(CC) $(CFLAGS_ALL) $(flags_$(1)) -O3 -DKVB_ISA=$(1) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call kernel_rule,$(i))))

# The version goes into one object, rebuilt only when it changes.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
$(BUILD)/version.c: FORCE
	@mkdir -p $(@D)
	@printf 'const char kvbench_version[] = "%s";\nconst char kvbench_build_flags[] = "%s";\n' '$(VERSION)' '$(strip $(CC) $(OPT) $(SAN)), $(if $(filter 1,$(CUDA)),CUDA for $(CUDA_ARCH:%=sm_%),without CUDA)' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/version.o: $(BUILD)/version.c
	@$(CC) $(CFLAGS_ALL) -c $< -o $@
# Files that travel inside the program: an array of bytes each, results/schema.sql is results_schema_sql.
resources := results/schema.sql results/migrate_2.sql results/migrate_3.sql results/migrate_4.sql report/page.css report/page.js $(wildcard harness/papers/*.json)
$(BUILD)/resources.c: $(resources)
	@mkdir -p $(@D)
	@for f in $(resources); do printf 'const char %s[] = {' "$$(echo $$f | tr ./ __)"; od -An -v -tu1 $$f | sed 's/\([0-9][0-9]*\)/\1,/g'; printf '0};\n'; done > $@
$(BUILD)/resources.o: $(BUILD)/resources.c
	@$(CC) $(CFLAGS_ALL) -c $< -o $@

# Tests: tests/unit/FOLDER/test_X.c is one cmocka program; it links everything (archives only give what is used).
tests_src := $(wildcard tests/unit/*/test_*.c)
tests_bin := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(tests_src))
below_base := harness/base
below_model := runners/model harness/base
below_device := runners/device harness/base
below_forward := runners/forward runners/device runners/model harness/base
below_methods := runners runners/methods runners/proxykv runners/mapper runners/lkv runners/forward runners/device runners/model harness/base
below_mapper := runners/mapper runners/device runners/model harness/base
below_proxykv := $(below_methods)
below_runners := tasks $(below_methods)
below_lkv := $(below_methods)
below_tasks := tasks harness/base
below_results := results harness/base
below_report := report results tasks harness/base
below_harness := $(MODULES)
# Files beside the tests of a folder that are no test_*.c are helpers of all of them.
helpers = $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/unit/$(1)/test_%.c,$(wildcard tests/unit/$(1)/*.c)))
define test_rule
$(BUILD)/tests/$(1)/%: $(BUILD)/tests/unit/$(1)/%.o $(call helpers,$(1)) $(BUILD)/version.o $(BUILD)/resources.o $(foreach m,$(below_$(1)),$(call archive,$(m)))
	@mkdir -p $$(@D)
	@echo '  LD $$@'
	@$(CC) $(CFLAGS_ALL) -o $$@ $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group -lcmocka $(LIBS)
endef
$(foreach t,base model device forward methods mapper proxykv lkv runners tasks results report harness,$(eval $(call test_rule,$(t))))
.PRECIOUS: $(BUILD)/tests/unit/%.o $(BUILD)/%.o
# The hub client's tests talk to a server of our own on the loopback (tests/hubserver); it is also a program, for tests/e2e/fetch.sh.
$(filter $(BUILD)/tests/harness/test_hub%,$(tests_bin)): $(BUILD)/tests/hubserver/hubserver.o
$(BUILD)/hubserver: $(BUILD)/tests/hubserver/main.o $(BUILD)/tests/hubserver/hubserver.o $(call archive,harness/base)
	@echo '  LD $@'
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)
# one folder's tests: make test-model
test-%: FORCE
	@$(MAKE) --no-print-directory $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/$*/test_*.c))
	@tests/run.sh $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/$*/test_*.c))
# AMX and AVX512-BF16 on any CPU with AVX-512.
include tests/tiles/tiles.mk

setup:
	@tests/setup.sh
# Plants faults in a database, for tests/e2e.
$(BUILD)/plant: $(BUILD)/tests/plant/main.o
	@echo '  LD $@'
	@$(CC) $(CFLAGS_ALL) -o $@ $^ -lsqlite3
# The program with real faults in two of its functions (tests/plant/fault.c), for nights that go wrong.
$(BUILD)/kvbench-faulty: $(BUILD)/tests/plant/fault.o $(BUILD)/harness/main.o $(BUILD)/version.o $(BUILD)/resources.o $(archives)
	@echo '  LD $@'
	@$(CC) $(CFLAGS_ALL) -Wl,--wrap=session_open,--wrap=method_select -o $@ $(filter %.o,$^) -Wl,--start-group $(archives) -Wl,--end-group $(LIBS)
tests-built: $(tests_bin) $(tiles_tests) $(BUILD)/hubserver $(BUILD)/plant $(BUILD)/kvbench-faulty
# What meets the clock by itself has the machine to itself: measured peaks, servers that stall, signals at a moment, nights.
tests_alone := $(BUILD)/tests/runners/test_bench $(BUILD)/tests/harness/test_hub_faults $(addprefix tests/e2e/,exit_codes.sh living.sh nights.sh)
tests_together := tests/check_layers.sh $(filter-out $(tests_alone),$(wildcard tests/e2e/*.sh) $(tests_bin)) $(tiles_tests)
test: setup
	@$(MAKE) --no-print-directory -j$(shell nproc) all tests-built cudaemu-built
	@$(emu_env) tests/run.sh --together $(tests_together) $(emu_run) --alone $(tests_alone)

demo: setup
	@$(MAKE) --no-print-directory -j$(shell nproc) all
	@harness/demo.sh

bench: all
	./kvbench bench --out results/bench.json

asan:
	@$(MAKE) --no-print-directory -j$(shell nproc) BUILD=build/asan OPT='-O1 -g' SAN='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' tests-built
	@KVB_SANITIZED=1 tests/run.sh $(patsubst $(BUILD)/%,build/asan/%,$(tests_bin) $(tiles_tests))
tsan:
	@$(MAKE) --no-print-directory -j$(shell nproc) BUILD=build/tsan OPT='-O1 -g' SAN='-fsanitize=thread' tests-built
	@KVB_SANITIZED=1 tests/run.sh $(patsubst $(BUILD)/%,build/tsan/%,$(filter $(BUILD)/tests/device/% $(BUILD)/tests/forward/% $(BUILD)/tests/runners/%,$(tests_bin)))

# Fuzz targets: tests/fuzz/fuzz_X.c with LLVMFuzzerTestOneInput, seeds in tests/fuzz/seeds/X/.
FUZZ_SECONDS ?= 60
fuzz_src := $(wildcard tests/fuzz/fuzz_*.c)
fuzz:
	@tests/setup.sh fuzz
	@$(MAKE) --no-print-directory BUILD=build/fuzz CC=clang OPT='-O1 -g' SAN='-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined' $(patsubst tests/fuzz/%.c,build/fuzz/bin/%,$(fuzz_src))
	@for t in $(patsubst tests/fuzz/fuzz_%.c,%,$(fuzz_src)); do \
		mkdir -p build/fuzz/corpus/$$t; \
		build/fuzz/bin/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -print_final_stats=1 build/fuzz/corpus/$$t tests/fuzz/seeds/$$t || exit 1; done
build/fuzz/bin/%: tests/fuzz/%.c $(call archive,runners/model) $(call archive,harness/base)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -fsanitize=fuzzer -o $@ $< $(filter %.a,$^) $(LIBS)

# The CUDA backend on the CPU: make cudaemu.
include tests/cudaemu/cudaemu.mk

long: all
	@tests/long_context.sh
real: all
	@tests/real_models.sh $(MODELS)

format:
	clang-format -i $$(git ls-files '*.c' '*.h')
clean:
	rm -rf build kvbench

FORCE:
.PHONY: help all setup test tests-built demo bench asan tsan fuzz long real format clean FORCE
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
