"""Fixtures of the mapper's gradients (tests/fixtures/mapper): python make_mapper.py FIXTURES

Small float64 cases in torch, put together from its own layers: parameters, features and oracle in; score, the five loss terms, the gradient of each
term by the scores and by every parameter out. Options are those of kvbench's mapper (runners/mapper/config.c), so that the test reads them
from the file. `linear` is a ridge regression solved by numpy."""
import json, os, sys
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
RATIOS, EPS, HEADS = (.1, .2, .3, .5, .7), 1e-6, 4
LS, HS, LL, HL, N = 3, 5, 4, 2, 23
BASE = dict(mapper="axial", layers=LS, proxy_heads=HS, target_layers=LL, target_kv_heads=HL, channels=8, taps=3, norm="layer", encoder="on",
            window=0, neighbours=0, embeddings="full", scope="global")
CASES = dict(flat=dict(mapper="flat", channels=12),
             flat_taps5=dict(mapper="flat", channels=10, taps=5, scope="layer"),
             axial=dict(window=4),
             axial_batch=dict(norm="batch", neighbours=1, embeddings="shared", scope="head"),
             axial_full=dict(window="full", neighbours="all", scope="layer"),
             axial_bare=dict(norm="batch", encoder="off"))


def shapes(c):
    """name -> shape of every parameter."""
    C, k = c["channels"], c["taps"]
    s = {}
    lin = lambda name, o, i: s.update({name + ".weight": (o, i), name + ".bias": (o,)})
    norm = lambda name: s.update({name + ".weight": (C,), name + ".bias": (C,)})
    conv = lambda name, o, i: s.update({name + ".weight": (o, i, k), name + ".bias": (o,)})
    if c["mapper"] == "flat":
        conv("c1", C, LS * HS), norm("n1"), conv("c2", C, C), norm("n2"), lin("out", LL * HL, C)
    else:
        groups = 1 if c["neighbours"] == "all" else LS
        conv("c1", C, LS if c["neighbours"] == "all" else 2 * c["neighbours"] + 1), norm("n1"), conv("c2", C, C), norm("n2")
        if c["encoder"] == "on":
            if c["window"]:
                norm("l1"), lin("qkv", 3 * C, C), lin("ao", C, C)
                s["rb"] = (HEADS, 2 * (64 if c["window"] == "full" else c["window"]) + 1)
            norm("l2"), lin("f1", 2 * C, C), lin("f2", C, 2 * C)
        full = c["embeddings"] == "full"
        s["he"], s["q"] = (groups if full else 1, HS, C), (LL if full else 1, HL, C)
        norm("l3"), lin("kv", 2 * C, C), lin("o", C, C), norm("l4"), lin("m1", 2 * C, C), lin("m2", C, 2 * C), norm("l5"), lin("out", 1, C)
    return s | {"a": (LL, HL), "b": (LL, HL)}


def group_of(c, l):
    """The proxy layer that target layer l (0-based) reads."""
    return 0 if c["neighbours"] == "all" else -(-(l + 1) * LS // LL) - 1


def flat(c, p, X):
    pad = c["taps"] // 2
    ln = lambda x, n: F.gelu(F.layer_norm(x.T, x.shape[:1], p[n + ".weight"], p[n + ".bias"])).T
    x = ln(F.conv1d(X.flatten(0, 1)[None], p["c1.weight"], p["c1.bias"], padding=pad)[0], "n1")
    x = x + ln(F.conv1d(x[None], p["c2.weight"], p["c2.bias"], padding=pad)[0], "n2")
    return F.linear(x.T, p["out.weight"], p["out.bias"]).T.view(LL, HL, N)


def stage1(c, p, X, running, training):
    """[group * head, N, C] after both convolutions."""
    k, all_layers, C = c["neighbours"], c["neighbours"] == "all", c["channels"]
    if all_layers:
        x = X.transpose(0, 1)
    else:
        wide = torch.cat([torch.zeros(k, HS, N), X, torch.zeros(k, HS, N)])
        x = torch.stack([wide[g:g + 2 * k + 1] for g in range(LS)]).transpose(1, 2).reshape(LS * HS, 2 * k + 1, N)
    for i in "12":
        x = F.conv1d(x, p[f"c{i}.weight"], p[f"c{i}.bias"], padding=c["taps"] // 2)
        if c["norm"] == "batch":
            x = F.batch_norm(x, running[f"n{i}.running_mean"], running[f"n{i}.running_var"], p[f"n{i}.weight"], p[f"n{i}.bias"], training)
            x = F.gelu(x)
        else:
            x = F.gelu(F.layer_norm(x.transpose(1, 2), (C,), p[f"n{i}.weight"], p[f"n{i}.bias"])).transpose(1, 2)
    return x.transpose(1, 2)


def attention(c, p, x):
    d, w = c["channels"] // HEADS, c["window"]
    half = 64 if w == "full" else w
    q, k, v = (t.unflatten(-1, (HEADS, d)).transpose(1, 2) for t in F.linear(x, p["qkv.weight"], p["qkv.bias"]).chunk(3, -1))
    apart = torch.arange(N)[None] - torch.arange(N)[:, None]
    z = q @ k.transpose(-1, -2) / d ** .5 + p["rb"][:, apart.clamp(-half, half) + half]
    if w != "full":
        z = z.masked_fill(apart.abs() > w, -torch.inf)
    return F.linear((z.softmax(-1) @ v).transpose(1, 2).flatten(-2), p["ao.weight"], p["ao.bias"])


def axial(c, p, X, running, training=True):
    C, d = c["channels"], c["channels"] // HEADS
    ln = lambda x, n: F.layer_norm(x, (C,), p[n + ".weight"], p[n + ".bias"])
    lin = lambda x, n: F.linear(x, p[n + ".weight"], p[n + ".bias"])
    x = stage1(c, p, X, running, training)
    if c["encoder"] == "on":
        if c["window"]:
            x = x + attention(c, p, ln(x, "l1"))
        x = x + lin(F.gelu(lin(ln(x, "l2"), "f1")), "f2")
    t = ln(x.unflatten(0, (-1, HS)) + p["he"][:, :, None], "l3")
    key, value = (u.unflatten(-1, (HEADS, d)) for u in lin(t, "kv").chunk(2, -1))      # [group, head, N, HEADS, d]
    rows = []
    for l in range(LL):
        q, g = p["q"][l if len(p["q"]) > 1 else 0], group_of(c, l)
        w = (torch.einsum("qhd,pnhd->nqhp", q.unflatten(-1, (HEADS, d)), key[g]) / d ** .5).softmax(-1)
        y = q + lin(torch.einsum("nqhp,pnhd->nqhd", w, value[g]).flatten(-2), "o")
        y = y + lin(F.gelu(lin(ln(y, "l4"), "m1")), "m2")
        rows.append(lin(ln(y, "l5"), "out")[..., 0].T)
    return torch.stack(rows)


def losses(c, s, y, z, cut, fine, anywhere):
    units = dict(scope_global=1, scope_layer=LL, scope_head=LL * HL)["scope_" + c["scope"]]
    su, yu, t = s.reshape(units, -1), y.reshape(units, -1), []
    for r in range(len(RATIOS)):
        label = yu > cut[r][:, None]
        at = [row.sort()[0][max(len(row) - int(b.sum()), 1) - 1] for row, b in zip(su.detach(), label)]
        t.append(F.binary_cross_entropy_with_logits(su - torch.stack(at)[:, None], label.double()))
    weight, sf, yf = 1 + y / y.mean(), s.flatten(), y.flatten()
    pair = lambda i, j: F.softplus(-(sf[i] - sf[j]) * torch.sign(yf[i] - yf[j]))
    share = (yf[anywhere[0]] - yf[anywhere[1]]).abs()
    centre = lambda v: v - v.mean(-1, keepdim=True)
    return {"bin": torch.stack(t).mean(), "mse": (weight * (s - z) ** 2).sum() / weight.sum(), "fine": pair(*fine).mean(),
            "global": (share / share.sum() * pair(*anywhere)).sum(), "cos": 1 - F.cosine_similarity(centre(s), centre(z), -1, 1e-6).mean()}


def make(name, options, folder):
    torch.manual_seed(len(name))
    c = BASE | options
    X, y = torch.randn(LS, HS, N), torch.rand(LL, HL, N) ** 4
    logy = torch.log(y + EPS)
    z = (logy - logy.mean()) / logy.std()
    p = {n: (.4 * torch.randn(s) + (1 if n.startswith(("n", "l")) and n.endswith("weight") or n == "a" else 0)).requires_grad_()
         for n, s in shapes(c).items()}
    units = dict(scope_global=1, scope_layer=LL, scope_head=LL * HL)["scope_" + c["scope"]]
    size = y.numel() // units
    ordered = y.reshape(units, -1).sort()[0]
    cut = torch.stack([ordered[:, size - int(r * size + 1e-9) - 1] for r in RATIOS])
    inside = [(y.reshape(units, -1)[u] > cut[2][u]).nonzero()[:, 0] + u * size for u in range(units)]
    unit = torch.randint(units, (40,))
    fine = torch.stack([torch.stack([inside[u][torch.randint(len(inside[u]), ())] for u in unit]) for _ in range(2)])
    anywhere = torch.randint(size, (2, 40)) + unit * size
    running = {f"n{i}.running_{w}": torch.zeros(c["channels"]) if w == "mean" else torch.ones(c["channels"]) for i in "12" for w in ("mean", "var")}
    raw = flat(c, p, X) if c["mapper"] == "flat" else axial(c, p, X, running)
    score = raw * p["a"][..., None] + p["b"][..., None]
    t = dict(X=X, y=y, z=z, cut=cut, fine=fine, anywhere=anywhere, score=score) | {"param." + n: v for n, v in p.items()}
    if c["norm"] == "batch" and c["mapper"] == "axial":
        t |= {"after." + n: v for n, v in running.items()}
        t["score_eval"] = axial(c, p, X, running, False) * p["a"][..., None] + p["b"][..., None]
    for term, value in losses(c, score, y, z, cut, fine, anywhere).items():
        t["loss." + term] = value.reshape(1)
        ds, *grads = torch.autograd.grad(value, [score, *p.values()], retain_graph=True)
        t["dscore." + term] = ds
        t |= {f"grad.{term}.{n}": g for n, g in zip(p, grads)}
    save_file({k: v.detach().clone().contiguous() for k, v in t.items()}, f"{folder}/{name}.safetensors", {"options": json.dumps(c)})


def ridge(folder):
    """min over W, b of sum |W x + b - z|^2 + lambda n |W|^2, x = three neighbouring columns of two contexts with zeros beyond their ends."""
    rng, lam, lengths, rows = np.random.default_rng(7), .02, (40, 25), LS * HS
    X = [rng.standard_normal((rows, n)) for n in lengths]
    Z = [np.tanh(x[:LL * HL] + .5 * np.roll(x[1:1 + LL * HL], 1, 1)) + .3 * rng.standard_normal((LL * HL, n)) + 2 for x, n in zip(X, lengths)]
    A = np.concatenate([np.stack([np.pad(x, ((0, 0), (1, 1)))[:, k:k + x.shape[1]] for k in range(3)], 1).reshape(3 * rows, -1) for x in X], 1)
    T = np.concatenate(Z, 1)
    mean, bias = A.mean(1, keepdims=True), T.mean(1, keepdims=True)
    A -= mean
    W = np.linalg.solve(A @ A.T + lam * A.shape[1] * np.eye(len(A)), A @ (T - bias).T).T
    t = {f"X{i}": x for i, x in enumerate(X)} | {f"z{i}": z for i, z in enumerate(Z)} | dict(weight=W, bias=(bias - W @ mean)[:, 0])
    save_file({k: torch.tensor(v).contiguous() for k, v in t.items()}, f"{folder}/linear.safetensors", {"lambda": str(lam)})


if __name__ == "__main__":
    out = os.path.join(sys.argv[1], "mapper")
    os.makedirs(out, exist_ok=True)
    for name, options in CASES.items():
        make(name, options, out)
    ridge(out)
