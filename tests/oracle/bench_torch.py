"""The peer of `kvbench bench`: transformers on torch, bf16, sdpa, random weights of a config's shape.

    python bench_torch.py CONFIG.json THREADS

Reads one request a line and answers `seconds X`, the time of that one repetition after a warm-up of the same shape:
`prefill N` (logits of the last token only), `decode DEPTH N` (N greedy tokens behind a cache of DEPTH). Ends with its input."""
import json, sys, time
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

torch.set_num_threads(int(sys.argv[2]))
torch.set_grad_enabled(False)
torch.manual_seed(1)
fields = json.load(open(sys.argv[1]))
fields.pop("torch_dtype", None), fields.pop("architectures", None)
config = AutoConfig.for_model(fields.pop("model_type"), **fields)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
warm, caches = set(), {}


def prefill(n):
    ids = torch.randint(0, config.vocab_size, (1, n))
    cache = DynamicCache(config=config)
    start = time.perf_counter()
    int(model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits.argmax())
    return time.perf_counter() - start, cache


def decode(depth, n):
    if depth not in caches:
        caches[depth] = prefill(depth)[1] if depth else DynamicCache(config=config)
    cache, token = caches[depth], torch.tensor([[1]])
    start = time.perf_counter()
    for _ in range(n):
        token = model(token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1)
    seconds = time.perf_counter() - start
    if depth:
        cache.crop(-(cache.get_seq_length() - depth))
    else:
        caches.pop(depth)
    return seconds


for line in sys.stdin:
    what, *numbers = line.split()
    run = (lambda: prefill(int(numbers[0]))[0]) if what == "prefill" else (lambda: decode(int(numbers[0]), int(numbers[1])))
    if line not in warm:
        run()
        warm.add(line)
    print("seconds %.6f" % run(), flush=True)
