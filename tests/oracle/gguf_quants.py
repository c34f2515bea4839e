"""GGUF v3 fixtures: one file with a tensor of every supported type, one whole tiny model.

    python gguf_quants.py FIXTURES

gguf/quants.gguf            [3, 256] tensors t.f32 .. t.q6_k, an empty architecture, one metadata key of every value type,
                            alignment 64.  The K types are random blocks (every bit pattern of scales and quants, scales of both signs)
                            because the package cannot make them; the others are quantised by the package.
gguf/quants.safetensors     the same tensors dequantised by the package, fp32
gguf/smollm2-tiny.gguf      models/smollm2-tiny as a GGUF of F32 tensors: Q and K rows permuted as llama-arch files have them, a gpt2/smollm
                            tokenizer of 300 tokens.  transformers gives the logits of logits/smollm2-tiny for it (checked here).
"""
import glob, json, os, sys
import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import pre_tokenizers
from common import load, write_tensors

ROWS, COLUMNS = 3, 256


def k_blocks(kind, rng):
    """[ROWS, bytes of a block]: random bytes with finite half-precision scales put in."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (ROWS, size), dtype=np.uint8)
    scales = rng.uniform(-0.02, 0.02, (ROWS, 2)).astype(np.float16)
    if kind == Q.Q6_K:
        blocks[:, size - 2:] = scales[:, :1].view(np.uint8)
    else:
        blocks[:, :4] = scales.view(np.uint8)
    return blocks


def quants(folder):
    rng = np.random.default_rng(11)
    writer = gguf.GGUFWriter(folder + "/quants.gguf", "llama")
    writer.add_custom_alignment(64)
    for name, value in [("uint8", 200), ("int8", -100), ("uint16", 60000), ("int16", -30000), ("uint32", 4000000000), ("int32", -2000000000),
                        ("uint64", 2**63 + 1), ("int64", -2**62), ("float32", 0.15625), ("float64", 1e-300), ("bool", True), ("string", "Größe 東京")]:
        getattr(writer, "add_" + name)("test." + name, value)
    writer.add_array("test.strings", ["a", "", "ccc"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -0.25])
    plain = {}
    for kind in (Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q4_K, Q.Q5_K, Q.Q6_K):
        name = "t." + kind.name.lower()
        if kind.name.endswith("_K"):
            data = k_blocks(kind, rng)
        else:
            values = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
            values[0, :32] = 0  # a block of zeros
            values[1, 32:64] = 3.25  # a constant block
            data = gguf.quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        plain[name] = torch.from_numpy(gguf.quants.dequantize(data, kind).astype(np.float32).reshape(ROWS, COLUMNS))
        assert torch.isfinite(plain[name]).all()
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()
    write_tensors(folder + "/quants.safetensors", plain)


def byte_letters():
    """the 256 printable letters of the byte-level alphabet, in byte order"""
    keep = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    spare = iter(range(256, 512))
    letters = [chr(b) if b in keep else chr(next(spare)) for b in range(256)]
    assert sorted(letters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    return letters


def permute(weight, heads):
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def tiny_model(fixtures, folder):
    source = fixtures + "/models/smollm2-tiny"
    config, weights = json.load(open(source + "/config.json")), {}
    for shard in glob.glob(source + "/*.safetensors"):
        weights.update(load_file(shard))
    writer = gguf.GGUFWriter(folder + "/smollm2-tiny.gguf", "llama")
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    merges = ["t h", "h e", "i n", "e r", "a n", "Ġ a", "Ġ t", "o n", "Ġt h", "Ġth e", "an d", "Ġ and", "in g", "r e", "e s"]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + byte_letters() + [m.replace(" ", "") for m in merges]
    tokens += [f"<|spare_{i}|>" for i in range(config["vocab_size"] - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i < 3 or t.startswith("<|spare") else 1 for i, t in enumerate(tokens)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, weight in weights.items():
        if "q_proj" in name or "k_proj" in name:
            weight = permute(weight, heads if "q_proj" in name else kv)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), weight.numpy())
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()
    ids = json.load(open(fixtures + "/logits/smollm2-tiny.json"))["ids"]
    want = safe_open(fixtures + "/logits/smollm2-tiny.safetensors", "pt").get_tensor("logits_fp32")
    got = load(folder, gguf_file="smollm2-tiny.gguf")(torch.tensor([ids])).logits[0, -len(want):]
    print("largest difference, GGUF against folder:", float((got - want).abs().max()))
    assert (got - want).abs().max() < 1e-4


def main(fixtures):
    folder = fixtures + "/gguf"
    os.makedirs(folder, exist_ok=True)
    quants(folder)
    tiny_model(fixtures, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
