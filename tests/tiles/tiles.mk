# tiles.mk: the kernels of AMX and AVX512-BF16 once more, compiled for plain AVX-512 with their instructions emulated (emulated.h), and the tests of the
# device, the forward pass and LKV linked against them and a machine that has both units (machine.c): included by the Makefile. Every `make test` runs
# them, as emulated_tiles/FOLDER/test_X; where there is no AVX-512 each is one skip.
TILES := $(BUILD)/emulated_tiles
tiles_flags := $(flags_avx512) -include tests/tiles/emulated.h
tiles_flags_amx := -DEMULATED_TILES
define tiles_rule
$(TILES)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	@echo '  CC $$< ($(1), emulated)'
	@$$(CC) $$(CFLAGS_ALL) $(tiles_flags) $(tiles_flags_$(1)) -O3 $$(tiles_fused) -DKVB_ISA=$(1) -c $$< -o $$@
endef
$(foreach i,avx512bf16 amx,$(eval $(call tiles_rule,$(i))))
$(TILES)/runners/lkv/kernels/dense.amx.o: tiles_fused := -ffp-contract=fast
$(TILES)/emulated.o: tests/tiles/emulated.c
	@mkdir -p $(@D)
	@echo '  CC $<'
	@$(CC) $(CFLAGS_ALL) $(tiles_flags) -O3 -c $< -o $@
# The instructions alone, the CPU's own beside the emulated ones
$(TILES)/instructions.emulated.o: tests/tiles/instructions.c
	@mkdir -p $(@D)
	@echo '  CC $< (emulated)'
	@$(CC) $(CFLAGS_ALL) $(tiles_flags) -DKVB_WHOSE=emulated -c $< -o $@
$(TILES)/instructions.real.o: tests/tiles/instructions.c
	@mkdir -p $(@D)
	@echo '  CC $< (real)'
	@$(CC) $(CFLAGS_ALL) $(flags_amx) -DKVB_WHOSE=real -c $< -o $@
# In front of the archives, so that ld takes none of these from there.
tiles_objects := $(foreach i,avx512bf16 amx,$(patsubst %.c,$(TILES)/%.$(i).o,$(kernels_$(i)))) $(TILES)/runners/lkv/kernels/dense.amx.o \
	$(TILES)/emulated.o
tiles_wrap := -Wl,--wrap=syscall
define tiles_link
	@mkdir -p $(@D)
	@echo '  LD $@'
	@$(CC) $(CFLAGS_ALL) $(if $(filter %/machine.o,$^),$(tiles_wrap)) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)
endef
define tiles_test_rule
$(TILES)/$(1)/%: $(BUILD)/tests/unit/$(1)/%.o $(call helpers,$(1)) $(tiles_objects) $(BUILD)/tests/tiles/machine.o $(BUILD)/version.o $(BUILD)/resources.o $(foreach m,$(below_$(1)),$(call archive,$(m)))
	$$(tiles_link)
endef
$(foreach t,device forward lkv,$(eval $(call tiles_test_rule,$(t))))
$(TILES)/test_emulated: $(BUILD)/tests/tiles/test_emulated.o $(TILES)/emulated.o $(TILES)/instructions.emulated.o $(TILES)/instructions.real.o \
	$(foreach m,$(below_device),$(call archive,$(m)))
	$(tiles_link)

tiles_tests := $(addprefix $(TILES)/,test_emulated device/test_attention device/test_device device/test_linear device/test_ops forward/test_bits forward/test_logits \
	lkv/test_net)
.SECONDARY: $(tiles_objects)
