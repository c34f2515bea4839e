"""Kept index sets and scores of kvpress 0.5.5 on two tiny models (fp32, sdpa attention, raw ids, no tokenizer).

    python kvpress_sets.py FIXTURES      reads FIXTURES/models, writes FIXTURES/kvpress/<model>.{json,safetensors}

Scores are taken from the press while it runs in its own forward hook; they are the numbers before any safeguard.  `keep` is the
set by descending score, lower (layer,) head, position first among equals.  The press itself leaves equals to torch.topk, so
`tied` lists the entries whose score equals the threshold within rounding: any choice among them is right, all else is fixed.
Every set without ties is checked against what the press really left in the cache (or masked), and the fp32 sets against a
float64 run: they may differ inside `tied` only.
"""
import sys
from types import SimpleNamespace
import torch
import kvpress
import kvpress.presses.kvzip_press as kvzip_module
from transformers import AutoModelForCausalLM, DynamicCache
from common import write_json, write_tensors

LENGTHS = {"llama-tiny": 200, "qwen3-tiny": 230}  # 200 and 230 times 1 - .9 lie just under an integer
RATIOS = [0.25, 0.5, 0.7, 0.9]
PLAIN = [  # name, press, parameters
    ("snapkv_w64", kvpress.SnapKVPress, dict(window_size=64, kernel_size=5)),
    ("snapkv_w16", kvpress.SnapKVPress, dict(window_size=16, kernel_size=5)),
    ("snapkv_w8_k7", kvpress.SnapKVPress, dict(window_size=8, kernel_size=7)),
    ("pyramidkv_w16", kvpress.PyramidKVPress, dict(window_size=16, kernel_size=5, beta=20)),
    ("pyramidkv_w8_b5", kvpress.PyramidKVPress, dict(window_size=8, kernel_size=5, beta=5)),
    ("knorm", kvpress.KnormPress, {}),
    ("keydiff", kvpress.KeyDiffPress, {}),
    ("tova", kvpress.TOVAPress, {}),
    ("expected_attention", kvpress.ExpectedAttentionPress, dict(n_future_positions=512, n_sink=4, use_covariance=True, use_vnorm=True, epsilon=0.0)),
    ("expected_attention_mean", kvpress.ExpectedAttentionPress, dict(n_future_positions=32, n_sink=4, use_covariance=False, use_vnorm=False, epsilon=0.0)),
    ("expected_attention_eps", kvpress.ExpectedAttentionPress, dict(n_future_positions=512, n_sink=4, use_covariance=True, use_vnorm=True, epsilon=0.01)),
    ("lagkv_lag128", kvpress.LagKVPress, dict(n_sink=4, lag_size=128)),
    ("lagkv_lag32", kvpress.LagKVPress, dict(n_sink=4, lag_size=32)),
    ("streaming_llm", kvpress.StreamingLLMPress, dict(n_sink=4)),
]
ADA = [("adakv_snapkv_w16", kvpress.SnapKVPress, dict(window_size=16, kernel_size=5), 0.2),
       ("adakv_snapkv_w16_a95", kvpress.SnapKVPress, dict(window_size=16, kernel_size=5), 0.95),
       ("adakv_expected_attention", kvpress.ExpectedAttentionPress, dict(n_future_positions=512, n_sink=4), 0.2)]
KVZIP = [  # name, prefix length (None: tokenizer without chat template), chunk size, layerwise
    ("kvzip_p10_c64", 10, 64, False), ("kvzip_p10_c64_layerwise", 10, 64, True), ("kvzip_p10", 10, 2048, False),
    ("kvzip_p2_c64", 2, 64, False), ("kvzip_no_template_c64", None, 64, False)]
SUFFIX, FIRST, NEXT, NO_TEMPLATE_SUFFIX = [21, 22, 23, 24, 25], [31, 32, 33, 34, 35, 36], [41, 42, 43, 44, 45, 46, 47], [26]


def select(scores, n_keep, spare):
    """scores [rows of one ranking]; keep the n_keep best.  Returns keep (sorted), tied (sorted); spare: scores that are sentinels."""
    order = torch.sort(scores, descending=True, stable=True).indices
    keep = order[:n_keep].sort().values
    if n_keep in (0, len(scores)):
        return keep.tolist(), []
    low, high = scores[order[n_keep - 1]], scores[order[n_keep]]
    usual = scores[~spare] if (~spare).any() else scores
    room = 1e-5 * low.abs() if (usual >= 0).all() else 1e-6 * usual.abs().max()
    if low - high > room:
        return keep.tolist(), []  # the threshold falls between two clearly different scores
    return keep.tolist(), ((scores <= low + room) & (scores >= high - room)).nonzero().flatten().tolist()


class Recorder:
    """Runs a press and collects, per layer, what its `score` returned and the unpruned keys."""
    def __init__(self, model, ids):
        self.model, self.ids = model, torch.tensor([ids])
        self.layers, self.heads = model.config.num_hidden_layers, model.config.num_key_value_heads

    def run(self, press, scorer):
        scores, keys, original = [None] * self.layers, [None] * self.layers, scorer.score

        def score(module, hidden, k, v, attentions, kwargs):
            s = original(module, hidden, k, v, attentions, kwargs)
            scores[module.layer_idx], keys[module.layer_idx] = s[0].clone(), k[0].clone()
            return s
        scorer.score = score
        cache = DynamicCache()
        with press(self.model):
            self.model.model(input_ids=self.ids, past_key_values=cache)
        masked = [getattr(layer.self_attn, "masked_key_indices", None) for layer in self.model.model.layers]
        return torch.stack(scores), keys, [c.keys[0] for c in cache.layers], masked

    def kvzip(self, press, prefix):
        texts = {"P": [int(x) for x in self.ids[0, :prefix or 0]], "S": SUFFIX, "": [], "\n": NO_TEMPLATE_SUFFIX,
                 "\n\nRepeat the previous context exactly.": FIRST,
                 "\n\nRepeat the part of the previous context exactly, starting with": NEXT}
        stub = SimpleNamespace(
            chat_template=None if prefix is None else "stub",
            apply_chat_template=lambda messages, **_: "P" + messages[0]["content"] + "S",
            encode=lambda text, **_: torch.tensor([texts[text]], dtype=torch.long))
        kvzip_module.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *_: stub)
        seen = {}
        prepare, finish = press.prepare, press.compress_post

        def keep_inputs(*a, **k):
            pairs = prepare(*a, **k)
            seen["repeat"] = [ids[0].tolist() for _, ids in pairs]
            return pairs

        def keep_scores(model):
            finish(model)  # sets the sink scores, then selects
            seen["scores"] = press.score_val[:, 0].clone()
        press.prepare, press.compress_post = keep_inputs, keep_scores
        if self.model.dtype == torch.float64:  # its mask constant does not fit through a C float
            press._make_mask = lambda _, size: setattr(press, "causal_mask_score", torch.full((size, size), -1e30, dtype=torch.float64).triu(1))
        with press(self.model):
            self.model(self.ids, past_key_values=DynamicCache())
        masked = [layer.self_attn.masked_key_indices for layer in self.model.model.layers]
        return seen["scores"], seen["repeat"], masked


def split(flat, heads, n):
    """indices into [heads * n] -> list of one sorted list per head"""
    return [[i - h * n for i in flat if h * n <= i < (h + 1) * n] for h in range(heads)]


def masked_to_keep(masked, heads, n):
    keep = torch.ones(heads, n, dtype=torch.bool)
    keep[masked[1], masked[2]] = False
    return [row.nonzero().flatten().tolist() for row in keep]


def plain_sets(rec, n, press_class, parameters, ratio):
    press = press_class(compression_ratio=ratio, **parameters)
    scores, keys, left, _ = rec.run(press, press)
    sentinel = scores >= scores.amax((1, 2), keepdim=True) if press_class in SENTINEL else torch.zeros_like(scores, dtype=torch.bool)
    keep, tied = [], []
    for l in range(rec.layers):
        for h in range(rec.heads):
            kept, near = select(scores[l, h], left[l].shape[1], sentinel[l, h])
            if not near:
                order = lambda k: k[torch.argsort(k[:, 0])]
                assert torch.equal(order(left[l][h]), order(keys[l][h, kept])), (press, l, h)
            keep.append(kept), tied.append(near)
    return scores, keep, tied


SENTINEL = (kvpress.SnapKVPress, kvpress.PyramidKVPress, kvpress.TOVAPress, kvpress.ExpectedAttentionPress)


def ada_sets(rec, n, press_class, parameters, alpha, ratio):
    inner = press_class(compression_ratio=ratio, **parameters)
    scores, _, _, masked = rec.run(kvpress.AdaKVPress(press=inner, alpha_safeguard=alpha), inner)
    n_kept = max(1, int(n * (1 - ratio)))
    n_safe = max(1, int(n_kept * alpha)) if alpha > 0 else 0
    keep, tied = [], []
    for l in range(rec.layers):
        s = scores[l].clone()
        sentinel = s >= s.max()
        for h in range(rec.heads):
            best = torch.sort(s[h], descending=True, stable=True).indices[:n_safe]
            s[h, best], sentinel[h, best] = float("inf"), True
        kept, near = select(s.flatten(), rec.heads * n_kept, sentinel.flatten())
        lists = split(kept, rec.heads, n)
        if not near:
            assert lists == masked_to_keep(masked[l], rec.heads, n), (press_class, alpha, l)
        keep += lists
        tied += split(near, rec.heads, n)
    return scores, keep, tied


def kvzip_sets(rec, n, prefix, chunk, layerwise, ratio):
    press = kvpress.KVzipPress(compression_ratio=ratio, layerwise=layerwise, chunk_size=chunk, n_sink=4)
    scores, repeat, masked = rec.kvzip(press, prefix)
    sentinel = scores > scores.max() - 0.5  # the sinks: largest score + 1
    if layerwise:
        keep, tied = [], []
        for l in range(rec.layers):
            kept, near = select(scores[l].flatten(), rec.heads * n - int(rec.heads * n * ratio), sentinel[l].flatten())
            keep += split(kept, rec.heads, n)
            tied += split(near, rec.heads, n)
    else:
        kept, near = select(scores.flatten(), scores.numel() - int(scores.numel() * ratio), sentinel.flatten())
        keep, tied = split(kept, rec.layers * rec.heads, n), split(near, rec.layers * rec.heads, n)
    if not any(tied):
        assert keep == sum((masked_to_keep(m, rec.heads, n) for m in masked), []), (prefix, chunk, layerwise)
    return scores, keep, tied, repeat


def main(fixtures):
    for name, n in LENGTHS.items():
        folder = f"{fixtures}/models/{name}"
        ids = torch.randint(3, 299, (n,), generator=torch.Generator().manual_seed(n)).tolist()
        recs = [Recorder(AutoModelForCausalLM.from_pretrained(folder, dtype=t, attn_implementation="sdpa").eval(), ids)
                for t in (torch.float32, torch.float64)]
        entries, tensors = [], {}

        def add(label, parameters, ratio, result, exact, **more):
            scores, keep, tied = result[:3]
            for kept, near, want in zip(keep, tied, exact[1]):
                assert set(kept) ^ set(want) <= set(near), (label, ratio, "float64 differs outside ties", sorted(set(kept) ^ set(want)))
            tensors.setdefault(f"{label}" + (f".{ratio}" if label == "streaming_llm" else ""), scores.float())
            entry = dict(press=label, parameters=parameters, ratio=ratio, scores=label + (f".{ratio}" if label == "streaming_llm" else ""),
                         count=[len(k) for k in keep], keep=keep, **more)
            if any(tied):
                entry["tied"] = tied
            entries.append(entry)
            print(name, label, ratio, "kept", entry["count"], "tied", sum(map(len, tied)), flush=True)

        for label, press, parameters in PLAIN:
            for ratio in RATIOS:
                add(label, parameters, ratio, *(plain_sets(r, n, press, parameters, ratio) for r in recs))
        for label, press, parameters, alpha in ADA:
            for ratio in RATIOS:
                add(label, dict(parameters, alpha_safeguard=alpha), ratio, *(ada_sets(r, n, press, parameters, alpha, ratio) for r in recs))
        for label, prefix, chunk, layerwise in KVZIP:
            for ratio in RATIOS:
                result = [kvzip_sets(r, n, prefix, chunk, layerwise, ratio) for r in recs]
                add(label, dict(n_sink=4, chunk_size=chunk, layerwise=layerwise, prefix_length=prefix or 0, template=prefix is not None,
                                repeat_inputs=result[0][3]), ratio, *result)
        for e in entries:  # the parameters once a press
            if e["ratio"] != RATIOS[0]:
                del e["parameters"]
        write_json(f"{fixtures}/kvpress/{name}.json", dict(kvpress="0.5.5", model=name, n=n, ids=ids, ratios=RATIOS,
            layers=recs[0].layers, kv_heads=recs[0].heads, kvzip_suffix=SUFFIX, kvzip_first=FIRST, kvzip_next=NEXT,
            kvzip_no_template_suffix=NO_TEMPLATE_SUFFIX, sets=entries))
        write_tensors(f"{fixtures}/kvpress/{name}.safetensors", tensors)


if __name__ == "__main__":
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    main(*sys.argv[1:])
