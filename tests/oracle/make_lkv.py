"""LKV fixtures in fp64: Soft-TopK, gated attention, the chain of networks, and the frozen decoder's backward pass.

    python make_lkv.py FIXTURES LKV.py      writes FIXTURES/lkv/parts.safetensors and FIXTURES/lkv/tail-<model>.safetensors

parts: the reference's own `fixture` command (LKV.py; contents in its README).  tail-<model>: for each tiny random model of
FIXTURES/models a context is prefilled by transformers in fp64; its K (after RoPE) and V are constants, random gates lie on them.
Two tails run over it in a decoder written out here, whose logits with all gates open must equal transformers' own (asserted);
loss = KL(random teacher || softmax(logits)) over some rows.  Stored: ids, seq lengths, K, V, logm, hidden, teacher, rows, loss and
the gradients of logm and of the tails' embeddings.
"""
import os, subprocess, sys
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

MODELS = ["llama-tiny", "qwen2-tiny", "qwen2-yarn-tiny", "qwen3-tiny", "smollm2-tiny"]
N, LENS, ROWS = 21, [6, 4], [2, 3, 5, 8]


def rms(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def tail(model, x, K, V, logm, n):
    """x [T, D] embeddings of one tail; K, V [L, Hk, n, d]; logm [L, Hk, n] -> hidden [T, D] after the final norm."""
    c = model.config
    d, H, Hk = K.shape[-1], c.num_attention_heads, c.num_key_value_heads
    T = len(x)
    rotary = model.model.rotary_emb
    a = torch.arange(n, n + T).float()[:, None] * rotary.inv_freq.float()[None]
    cos, sin = (f(a.double()).repeat(1, 2) * rotary.attention_scaling for f in (torch.cos, torch.sin))
    turn = lambda t: t * cos + torch.cat([-t[..., d // 2:], t[..., :d // 2]], -1) * sin
    mask = torch.triu(torch.full((T, T), -torch.inf, dtype=torch.float64), 1)
    for l, layer in enumerate(model.model.layers):
        s = layer.self_attn
        h = rms(x, layer.input_layernorm.weight, c.rms_norm_eps)
        q, k, v = (f(h).view(T, -1, d).transpose(0, 1) for f in (s.q_proj, s.k_proj, s.v_proj))
        if hasattr(s, "q_norm"):
            q, k = rms(q, s.q_norm.weight, c.rms_norm_eps), rms(k, s.k_norm.weight, c.rms_norm_eps)
        q, k = turn(q) * d ** -.5, turn(k)
        rep = lambda t: t.repeat_interleave(H // Hk, 0)
        z = torch.cat([q @ rep(K[l]).transpose(1, 2) + rep(logm[l])[:, None], q @ rep(k).transpose(1, 2) + mask], -1)
        o = torch.softmax(z, -1) @ torch.cat([rep(V[l]), rep(v)], 1)
        x = x + s.o_proj(o.transpose(0, 1).reshape(T, -1))
        h = rms(x, layer.post_attention_layernorm.weight, c.rms_norm_eps)
        x = x + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(h)) * layer.mlp.up_proj(h))
    return rms(x, model.model.norm.weight, c.rms_norm_eps)


def fixture(folder, out):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval().double()
    for p in model.parameters():
        p.requires_grad_(False)
    c = model.config
    context = torch.randint(3, c.vocab_size, (1, N))
    cache = model(context, use_cache=True).past_key_values
    K, V = (torch.stack([getattr(layer, name)[0] for layer in cache.layers]) for name in ("keys", "values"))
    ids = [torch.randint(3, c.vocab_size, (n,)) for n in LENS]
    open_ = torch.zeros(K.shape[:-1], dtype=torch.float64)
    for t in ids:
        whole = model(torch.cat([context[0], t])[None]).logits[0, N:]
        mine = model.lm_head(tail(model, model.model.embed_tokens(t), K, V, open_, N))
        assert (whole - mine).abs().max() < 1e-5 * whole.abs().max(), (whole - mine).abs().max()  # their rotation is fp32
    logm = (-2 * torch.rand(K.shape[:-1], dtype=torch.float64) ** 2 - 1e-3).requires_grad_()
    x0 = torch.cat([model.model.embed_tokens(t) for t in ids]).requires_grad_()
    hidden = torch.cat([tail(model, x, K, V, logm, N) for x in x0.split(LENS)])
    teacher = torch.log_softmax(2 * torch.randn(len(ROWS), c.vocab_size, dtype=torch.float64), -1)
    loss = F.kl_div(torch.log_softmax(model.lm_head(hidden[ROWS]), -1), teacher, log_target=True, reduction="sum") / len(ROWS)
    dl, dx, dh = torch.autograd.grad(loss, (logm, x0, hidden))
    save_file({k: v.detach().contiguous().clone() for k, v in dict(ids=torch.cat(ids).int(), lens=torch.tensor(LENS).int(), rows=torch.tensor(ROWS).int(),
        K=K, V=V, logm=logm, hidden=hidden, teacher=teacher, loss=loss[None], d_logm=dl, d_x0=dx, d_hidden=dh).items()}, out)
    print(out, os.path.getsize(out), "bytes; loss", loss.item(), flush=True)


def main(fixtures, reference):
    os.makedirs(fixtures + "/lkv", exist_ok=True)
    subprocess.run([sys.executable, reference, "fixture", fixtures + "/lkv/parts.safetensors"], check=True)
    for name in MODELS:
        fixture(f"{fixtures}/models/{name}", f"{fixtures}/lkv/tail-{name}.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
