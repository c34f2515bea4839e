/* test_config.c: hyper-parameters of config.json in every spelling, what is refused, and the rotary frequencies. */
#include <math.h>

#include "runners/model/config.h"
#include "tests/unit/model/inputs.h"

/* config.json of a small Llama with more keys (", "key": value") and fewer. */
static int parse(struct model_config *c, const char *arch, const char *more, char err[ERR_LEN])
{
	char *text =
		text_format("{\"architectures\": [\"%s\"], \"vocab_size\": 10, \"hidden_size\": 64, \"num_hidden_layers\": 2,"
			    "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"max_position_embeddings\": 131072%s}",
			arch, more);
	int rc = config_from_json(c, "config.json", text, strlen(text), err);
	free(text);
	return rc;
}

static struct model_config parsed(const char *arch, const char *more)
{
	struct model_config c;
	char err[ERR_LEN];
	if (parse(&c, arch, more, err))
		fail_msg("%s", err);
	return c;
}

static void fills_in_defaults(void **state)
{
	(void)state;
	struct model_config c = parsed("LlamaForCausalLM", "");
	assert_true(c.kv_heads == 4 && c.head_dim == 16 && !c.tied && c.rope.kind == ROPE_PLAIN && c.rope.theta == 1e4);
	assert_true(c.norm_eps == 1e-6f && c.bos == -1 && c.n_eos == 0);
	c = parsed("Qwen3ForCausalLM", ", \"num_key_value_heads\": 2, \"eos_token_id\": [3, 4, 3], \"bos_token_id\": null");
	assert_true(c.head_dim == 128 && c.kv_heads == 2 && c.qk_norm && c.n_eos == 2 && c.eos[1] == 4);
	c = parsed("Qwen2ForCausalLM",
		", \"attention_bias\": true, \"use_sliding_window\": false, \"sliding_window\": 4096, \"rope_scaling\": null");
	assert_true(c.qkv_bias && !c.qk_norm);
}

static void reads_rope_in_every_spelling(void **state)
{
	(void)state;
	static const char *const spellings[] = {
		", \"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}",
		", \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 3.0}",
		", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3.0, \"rope_theta\": 500000.0}",
		", \"rope_theta\": 1, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3, \"rope_theta\": 5e5}",
	};
	for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
		struct model_config c = parsed("LlamaForCausalLM", spellings[i]);
		assert_true(c.rope.kind == ROPE_LINEAR && c.rope.factor == 3 && c.rope.theta == 5e5);
	}
	struct model_config c = parsed("LlamaForCausalLM", ", \"rope_parameters\": {\"rope_theta\": 100000.0}");
	assert_true(c.rope.kind == ROPE_PLAIN && c.rope.theta == 1e5);
	c = parsed("LlamaForCausalLM", ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}");
	assert_int_equal(c.rope.original_max_positions, 131072);
	c = parsed("LlamaForCausalLM",
		", \"original_max_position_embeddings\": 4096, \"rope_scaling\": {\"rope_type\": \"yarn\", "
		"\"factor\": 4, \"original_max_position_embeddings\": 8192}");
	assert_int_equal(c.rope.original_max_positions, 4096); /* as transformers 5.24 */
}

/* Against transformers 5.2.0: frequencies at 0, 1/4, 1/2, 3/4 and the end of the table, and the factor of cos and sin. head_dim
 * 128, theta 1e6 (llama3: 5e5). Of 64 values at most one differed, by 2 units in the last place (torch's power function). */
static void scales_frequencies_as_transformers(void **state)
{
	(void)state;
#define YARN "\"type\": \"yarn\", \"original_max_position_embeddings\": "
	static const struct {
		const char *scaling;
		double theta;
		float want[5];
		double mscale;
	} cases[] = {
		{"{\"type\": \"linear\", \"factor\": 3.0}", 1e6,
			{0x1.555556p-2f, 0x1.5967b2p-7f, 0x1.5d867ep-12f, 0x1.61b1dap-17f, 0x1.bc262p-22f}, 1},
		{"{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
		 "\"original_max_position_embeddings\": 8192}",
			5e5, {1, 0x1.34119p-5f, 0x1.132ba4p-11f, 0x1.be2188p-18f, 0x1.4985fep-22f}, 1},
		{"{" YARN "32768, \"factor\": 4.0}", 1e6, {1, 0x1.030dc6p-5f, 0x1.3c1d64p-11f, 0x1.094564p-17f, 0x1.4d1c98p-22f},
			1.138629436111989},
		{"{" YARN "32768, \"factor\": null}", 1e6, {1, 0x1.030dc6p-5f, 0x1.3c1d64p-11f, 0x1.094564p-17f, 0x1.4d1c98p-22f},
			1.138629436111989},
		{"{" YARN "1000, \"factor\": 2.5, \"attention_factor\": 1.7, \"beta_fast\": 20, \"beta_slow\": 2}", 1e6,
			{1, 0x1.50c51cp-6f, 0x1.a36e2ep-12f, 0x1.a86f08p-17f, 0x1.0a7d46p-21f}, 1.7},
		{"{" YARN "4096, \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 0.707}", 1e6,
			{1, 0x1.b1ea44p-6f, 0x1.a36e2ep-16f, 0x1.a86f08p-21f, 0x1.0a7d46p-25f}, 1.0857263992561355},
		{"{" YARN "4096, \"factor\": 8, \"truncate\": false}", 1e6,
			{1, 0x1.cc969ep-6f, 0x1.0624dep-13f, 0x1.094564p-18f, 0x1.4d1c98p-23f}, 1.2079441541679836},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *more = text_format(
			", \"head_dim\": 128, \"rope_theta\": %g, \"rope_scaling\": %s", cases[i].theta, cases[i].scaling);
		struct model_config c = parsed("LlamaForCausalLM", more);
		double inv_freq[64], mscale;
		const int at[5] = {0, 16, 32, 48, 63};
		model_rope(&c, inv_freq, &mscale);
		for (int k = 0; k < 5; k++)
			if (!(fabs(inv_freq[at[k]] / cases[i].want[k] - 1) < 0x1p-21)) /* 2 units and a half */
				fail_msg("case %zu: frequency %d is %a, expected %a", i, at[k], inv_freq[at[k]],
					(double)cases[i].want[k]);
		assert_true(fabs(mscale - cases[i].mscale) < 1e-15);
		free(more);
	}
}

static void refuses_what_it_cannot_compute(void **state)
{
	(void)state;
	static const struct {
		const char *arch, *more, *says;
	} cases[] = {
		{"MistralForCausalLM", "",
			"MistralForCausalLM is not supported; known: llama (LlamaForCausalLM), qwen2 (Qwen2ForCausalLM), qwen3"},
		{"Qwen2ForCausalLM", ", \"use_sliding_window\": true", "use_sliding_window is set"},
		{"Qwen3ForCausalLM", ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
			"layer 1 has sliding_attention"},
		{"Qwen3ForCausalLM", ", \"attention_bias\": true", "attention_bias is set"},
		{"LlamaForCausalLM", ", \"mlp_bias\": true", "mlp_bias is set"},
		{"LlamaForCausalLM", ", \"quantization_config\": {\"quant_method\": \"fp8\"}", "quantization_config is set"},
		{"LlamaForCausalLM", ", \"hidden_act\": \"gelu\"", "hidden_act gelu"},
		{"LlamaForCausalLM", ", \"num_key_value_heads\": 3", "4 attention heads are no multiple of 3"},
		{"LlamaForCausalLM", ", \"head_dim\": 15", "head_dim 15"},
		{"LlamaForCausalLM", ", \"num_key_value_heads\": \"2\"", "num_key_value_heads is out of range"},
		{"LlamaForCausalLM", ", \"num_hidden_layers\": 1000000000", "num_hidden_layers is out of range"},
		{"LlamaForCausalLM", ", \"vocab_size\": 0", "vocab_size is out of range"},
		{"LlamaForCausalLM", ", \"vocab_size\": null", "vocab_size is missing"},
		{"LlamaForCausalLM", ", \"hidden_size\": null", "hidden_size is missing"},
		{"LlamaForCausalLM", ", \"rms_norm_eps\": -1", "rms_norm_eps"},
		{"LlamaForCausalLM", ", \"eos_token_id\": 10", "EOS id 10 is outside the vocabulary of 10"},
		{"LlamaForCausalLM", ", \"eos_token_id\": [\"x\"]", "EOS id"},
		{"LlamaForCausalLM", ", \"eos_token_id\": [0,1,2,3,4,5,6,7,8]", "more than 8 EOS ids"},
		{"LlamaForCausalLM", ", \"rope_theta\": 0", "rope_theta"},
		{"LlamaForCausalLM", ", \"partial_rotary_factor\": 0.5", "partial_rotary_factor 0.5"},
		{"LlamaForCausalLM", ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}",
			"rope type dynamic is not supported; known"},
		{"LlamaForCausalLM", ", \"rope_scaling\": {\"type\": \"linear\"}", "factor is missing"},
		{"LlamaForCausalLM", ", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}", "low_freq_factor is missing"},
		{"LlamaForCausalLM",
			", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": "
			"4}",
			"low_freq_factor >= high_freq_factor"},
		{"LlamaForCausalLM",
			", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0}",
			"original length"},
		{"LlamaForCausalLM",
			", \"original_max_position_embeddings\": -1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}",
			"original length"},
		{"LlamaForCausalLM", ", \"rope_scaling\": \"yarn\"", "rope_scaling is not an object"},
		{"LlamaForCausalLM", ", \"rope_parameters\": [8]", "rope_parameters is not an object"},
		{"LlamaForCausalLM", ", \"hidden_act\": [\"gelu\"]", "hidden_act is not text"},
		{"Qwen3ForCausalLM", ", \"layer_types\": \"sliding_attention\"", "layer_types is not a list"},
		{"LlamaForCausalLM", ", \"tie_word_embeddings\": \"yes\"", "tie_word_embeddings is not true or false"},
		{"LlamaForCausalLM", ", \"bos_token_id\": \"<s>\"", "bos_token_id is not an id"},
		{"LlamaForCausalLM", ", \"eos_token_id\": \"</s>\"", "eos_token_id is not an id or a list of ids"},
		{"LlamaForCausalLM", ",", "config.json, line 1"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_config c;
		char err[ERR_LEN] = "";
		if (parse(&c, cases[i].arch, cases[i].more, err) == 0)
			fail_msg("case %zu was accepted: %s", i, cases[i].more);
		assert_contains(err, "config.json");
		assert_contains(err, cases[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fills_in_defaults),
		cmocka_unit_test(reads_rope_in_every_spelling),
		cmocka_unit_test(scales_frequencies_as_transformers),
		cmocka_unit_test(refuses_what_it_cannot_compute),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
