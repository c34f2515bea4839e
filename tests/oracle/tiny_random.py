"""Tiny random models of every supported architecture, with their logits and greedy tokens.

    python tiny_random.py FIXTURES      writes FIXTURES/models/<name>/ and FIXTURES/logits/<name>.{json,safetensors}

The shapes are chosen to break wrong code: group sizes 2 and 3, scaled RoPE whose bands all occur, QKV bias, q/k norm with
head_dim != hidden/heads, tied and untied outputs, a sharded checkpoint, a bf16 checkpoint, config.json in the old form
(rope_theta, rope_scaling) and in the new one (rope_parameters).  Linear weights have a gain above 1 and norms are random
around 1, so that logits spread and attention is neither flat nor one-hot.
"""
import json, os, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from common import greedy, load, sha256, write_json, write_tensors

PROMPT, GREEDY, ROWS = 150, 64, 8
BASE = dict(vocab_size=300, num_hidden_layers=3, hidden_act="silu", max_position_embeddings=512, attention_dropout=0.0,
            initializer_range=0.02, use_cache=True, bos_token_id=1, eos_token_id=2, torch_dtype="float32")
MODELS = {
    "llama-tiny": dict(BASE, architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=64, intermediate_size=112,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False,
        attention_bias=False, mlp_bias=False,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "qwen2-tiny": dict(BASE, architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=96, intermediate_size=112,
        num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True,
        use_sliding_window=False, sliding_window=64, max_window_layers=3),
    "qwen2-yarn-tiny": dict(BASE, architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=96, intermediate_size=112,
        num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=False,
        use_sliding_window=False, sliding_window=64, max_window_layers=3, max_position_embeddings=256, torch_dtype="bfloat16",
        num_hidden_layers=2, rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
    "qwen3-tiny": dict(BASE, architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=64, intermediate_size=112,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, rope_theta=500000.0, tie_word_embeddings=False,
        attention_bias=False, rope_scaling=None, use_sliding_window=False, sliding_window=None, max_window_layers=3),
    "smollm2-tiny": dict(BASE, architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=72, intermediate_size=112,
        num_attention_heads=9, num_key_value_heads=3, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=True, attention_bias=False,
        mlp_bias=False, rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
}


def randomise(model, seed):
    gen = torch.Generator().manual_seed(seed)
    normal = lambda p, std, mean=0.0: p.copy_(torch.randn(p.shape, generator=gen) * std + mean)
    for name, p in model.named_parameters():
        if "norm" in name:
            normal(p, 0.2, 1.0)
        elif "bias" in name:
            normal(p, 0.3 if "v_proj" in name else 0.7)  # a large constant value would drown the text
        elif "embed" in name:
            normal(p, 0.3)
        elif "lm_head" in name:
            normal(p, 0.3)
        else:
            normal(p, 1.4 / p.shape[1] ** 0.5)


def save_model(model, config, folder):
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    with open(folder + "/generation_config.json", "w") as file:
        file.write('{"bos_token_id": 1, "eos_token_id": [2, 299]}\n' if "llama" in folder else '{"bos_token_id": 1, "eos_token_id": 2}\n')
    kind = torch.bfloat16 if config["torch_dtype"] == "bfloat16" else torch.float32
    for old in os.listdir(folder):
        if "safetensors" in old:
            os.remove(f"{folder}/{old}")
    tensors = {k: v.to(kind).contiguous().clone() for k, v in model.state_dict().items()
               if not (k == "lm_head.weight" and config["tie_word_embeddings"])}
    if "smollm2" not in folder:
        write_tensors(folder + "/model.safetensors", tensors)
        return
    names, where = sorted(tensors), {}
    for part, keys in enumerate((names[:13], names[13:]), 1):  # the cut falls inside a layer
        shard = f"model-0000{part}-of-00002.safetensors"
        write_tensors(f"{folder}/{shard}", {k: tensors[k] for k in keys})
        where.update({k: shard for k in keys})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(folder + "/model.safetensors.index.json", "w") as file:
        json.dump(dict(metadata=dict(total_size=total), weight_map=where), file, indent=1)


def main(fixtures):
    for number, (name, config) in enumerate(MODELS.items()):
        folder = f"{fixtures}/models/{name}"
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/config.json", "w") as file:
            json.dump(config, file)
        for seed in range(100 * number, 100 * number + 100):  # a seed whose greedy text wanders and has no near-ties
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager").float().eval()
            randomise(model, seed)
            model.tie_weights()
            save_model(model, config, folder)
            model = load(folder)
            gen = torch.Generator().manual_seed(seed + 7)
            ids = torch.randint(3, 299, (PROMPT,), generator=gen).tolist()
            tokens, margins, _ = greedy(model, ids, GREEDY)
            if len(set(tokens)) > 30 and min(margins) > 0.01:
                break
        out = model(torch.tensor([ids])).logits[0]
        rounded = load(folder)
        for p in rounded.parameters():
            p.copy_(p.to(torch.bfloat16).float())
        half = load(folder, torch.bfloat16)
        last = dict(logits_fp32=out[-ROWS:], logits_bf16_weights=rounded(torch.tensor([ids])).logits[0, -ROWS:],
                    logits_bf16=half(torch.tensor([ids])).logits[0, -ROWS:].float())
        write_tensors(f"{fixtures}/logits/{name}.safetensors", last)
        write_json(f"{fixtures}/logits/{name}.json", dict(model=name, seed=seed, ids=ids, rows=ROWS, greedy=tokens, greedy_margin=margins,
            logit_std=float(out.std()), bf16_max_abs_difference=float((last["logits_bf16"] - last["logits_fp32"]).abs().max()),
            bf16_weights_max_abs_difference=float((last["logits_bf16_weights"] - last["logits_fp32"]).abs().max())))
        print(name, "seed", seed, "distinct", len(set(tokens)), "least margin", min(margins), "std", float(out.std()), "bf16",
              float((last["logits_bf16"] - last["logits_fp32"]).abs().max()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
