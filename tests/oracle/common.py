"""What the fixture scripts share: two torch threads, model loading in fp32 with plain attention, a greedy loop which
also records the margin between the two best logits, and writers for JSON and safetensors."""
import hashlib, json, os
import gguf
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging

torch.set_num_threads(2)
torch.set_grad_enabled(False)
logging.disable_progress_bar()


def load(folder, dtype=torch.float32, **more):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **more).eval()


def greedy(model, ids, steps, stop=()):
    """ids: list of int.  Returns tokens (stop token included), top-2 margins (one a token), logits of the last prompt position."""
    tokens, margins, first, cache, feed = [], [], None, None, torch.tensor([ids])
    while len(tokens) < steps and not (tokens and tokens[-1] in stop):
        out = model(feed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, row = out.past_key_values, out.logits[0, -1].float()
        if first is None:
            first = row.clone()
        best = row.topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 6))
        feed = torch.tensor([[tokens[-1]]])
    return tokens, margins, first


def gguf_tokenizer(path):
    """Tokenizer of a GGUF file.  For `pre` = smollm it is put together here, because transformers leaves out the splitting of digits."""
    field = lambda key: gguf.GGUFReader(path).fields["tokenizer." + key].contents()
    if field("ggml.pre") != "smollm":
        return AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))
    tokens, types = field("ggml.tokens"), field("ggml.token_type")
    made = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in field("ggml.merges")]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, types) if kind == 3])
    name = lambda key: tokens[field(f"ggml.{key}_token_id")]
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=name("bos"), eos_token=name("eos"), unk_token=name("unknown"),
                                   chat_template=field("chat_template"), clean_up_tokenization_spaces=False)


def write_json(path, value):
    """One line for each entry of the two outer levels: small files that still diff well."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    flat = lambda v: json.dumps(v, ensure_ascii=True, separators=(",", ":"))
    if isinstance(value, dict):
        rows = []
        for key, v in value.items():
            if isinstance(v, list) and v and isinstance(v[0], (dict, list)):
                rows.append(json.dumps(key) + ": [\n  " + ",\n  ".join(flat(x) for x in v) + "\n ]")
            else:
                rows.append(json.dumps(key) + ": " + flat(v))
        text = "{\n " + ",\n ".join(rows) + "\n}\n"
    else:
        text = "[\n " + ",\n ".join(flat(v) for v in value) + "\n]\n"
    with open(path, "w") as file:
        file.write(text)
    print(f"{path}: {len(text)} bytes", flush=True)


def write_tensors(path, tensors):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)


def sha256(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()
