"""Statistics as scipy, statsmodels and numpy have them: tests/fixtures/stats.json for tests/unit/results/test_stats_oracle.c.

    python make_stats.py ../fixtures

Needs scipy, statsmodels, numpy only. What has one right value (Wilson, p-values, Holm, standard errors, quantiles) is given to all digits;
bootstrap intervals are those of 400,000 resamples in numpy or scipy. Steps are found by trying every partition.
"""
import itertools
import json
import sys

import numpy as np
import scipy
import statsmodels
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import proportion_confint

rng = np.random.default_rng(20261129)


def clustered(groups, size, p_spread=0.3, flips=0.12):
    """0/1 scores of before and after, dependent within a context."""
    level = np.clip(rng.normal(0.6, p_spread, groups), 0.02, 0.98)
    cluster = np.repeat(np.arange(groups), size)
    a = (rng.random(groups * size) < level[cluster]).astype(float)
    flip = rng.random(a.size) < flips
    b = np.where(flip, (rng.random(a.size) < level[cluster] - 0.2).astype(float), a)
    return a, b, cluster


def cluster_bootstrap(d, cluster, draws=400_000):
    groups = np.unique(cluster)
    total = np.array([d[cluster == g].sum() for g in groups])
    size = np.array([(cluster == g).sum() for g in groups])
    means = []
    for _ in range(draws // 10_000):
        at = rng.integers(0, len(groups), (10_000, len(groups)))
        means.append(total[at].sum(1) / size[at].sum(1))
    return np.quantile(np.concatenate(means), [0.025, 0.975]).tolist()


def sign_flip(d, cluster):
    sums = np.array([d[cluster == g].sum() for g in np.unique(cluster)])
    r = stats.permutation_test((sums,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided")
    return float(r.pvalue)


def wilson():
    out = []
    for k, n in [(0, 10), (10, 10), (1, 7), (10, 50), (499, 500), (3, 1000)]:
        lo, hi = proportion_confint(k, n, method="wilson")
        out.append({"k": k, "n": n, "lo": float(lo), "hi": float(hi)})
    return out


def errors():
    out = []
    for groups, size in [(30, 1), (12, 5), (40, 3)]:
        a, _, cluster = clustered(groups, size)
        fit = sm.OLS(a, np.ones_like(a)).fit()
        robust = fit.get_robustcov_results("cluster", groups=cluster, use_correction=False)
        out.append({"x": a.tolist(), "cluster": cluster.tolist(), "se": float(stats.sem(a)), "cluster_se": float(robust.bse[0])})
    return out


def bootstrap():
    out = []
    for x in (rng.random(60) ** 2, (rng.random(80) < 0.3).astype(float)):
        r = stats.bootstrap((x,), np.mean, n_resamples=400_000, batch=10_000, method="percentile", rng=rng)
        out.append({"x": x.tolist(), "lo": float(r.confidence_interval.low), "hi": float(r.confidence_interval.high)})
    return out


def paired():
    out = []
    for name, groups, size in [("single 0/1", 200, 1), ("single 0/1, few", 25, 1), ("clusters 0/1", 20, 5), ("F1, clusters", 14, 4)]:
        a, b, cluster = clustered(groups, size, flips={"single 0/1": 0.12, "single 0/1, few": 0.9}.get(name, 0.4))
        if name.startswith("F1"):
            a, b = np.round(a * rng.random(a.size), 4), np.round(b * rng.random(a.size), 4)
        d = b - a
        case = {"name": name, "a": a.tolist(), "b": b.tolist(), "cluster": cluster.tolist(), "mean": float(d.mean())}
        case["lo"], case["hi"] = cluster_bootstrap(d, cluster)
        if size == 1:
            table = [[int(((a == i) & (b == j)).sum()) for j in (0, 1)] for i in (0, 1)]
            case["p"] = float(mcnemar(table, exact=True).pvalue)
        else:
            case["p"] = sign_flip(d, cluster)
        out.append(case)
    return out


def holm():
    out = []
    for p in ([0.01, 0.04, 0.03, 0.005], [0.5, 0.0001, 0.0001, 0.9, 0.02, 0.7], [0.2], rng.random(40).tolist()):
        out.append({"p": list(p), "adjusted": multipletests(p, method="holm")[1].tolist()})
    return out


def detectable():
    out = []
    for se, alpha, power in [(1.0, 0.05, 0.8), (0.02, 0.01, 0.9), (0.5, 0.0005, 0.5)]:
        # of a normal mean with this standard error: n = 2 in each group with sd = se
        effect = NormalIndPower().solve_power(effect_size=None, nobs1=2, alpha=alpha, power=power, ratio=1, alternative="two-sided")
        out.append({"se": se, "alpha": alpha, "power": power, "difference": float(effect) * se})
    return out


def ranks():
    out = []
    for x, y in [
        (rng.normal(0, 1, 9), rng.normal(0.8, 1, 9)),
        (np.arange(9.0), np.arange(9.0) + 20),
        (rng.normal(0, 1, 3), rng.normal(0, 1, 12)),
        (rng.normal(0, 1, 25), rng.normal(0.4, 1, 25)),
        (rng.integers(0, 6, 9).astype(float), rng.integers(2, 8, 11).astype(float)),
        (rng.integers(0, 4, 40).astype(float), rng.integers(0, 4, 30).astype(float)),
        (rng.normal(0, 1, 60), rng.normal(0.4, 1, 50)),
    ]:
        tied = len(np.unique(np.concatenate([x, y]))) < len(x) + len(y)
        exact = not tied and len(x) + len(y) <= 50
        r = stats.mannwhitneyu(x, y, method="exact" if exact else "asymptotic", use_continuity=True)
        out.append({"x": x.tolist(), "y": y.tolist(), "u": float(r.statistic), "p": float(r.pvalue), "exact": exact})
    return out


def modified_z():
    out = []
    for x in (np.append(rng.normal(50, 1, 11), [58.0]), np.array([5.0, 5, 5, 5, 5, 5, 9]), np.array([3.0, 3, 3])):
        median = np.median(x)
        mad = stats.median_abs_deviation(x)
        if mad > 0:
            z = stats.norm.ppf(0.75) * (x - median) / mad
        else:
            mean = np.abs(x - median).mean()
            z = (x - median) / (np.sqrt(np.pi / 2) * mean) if mean > 0 else np.zeros_like(x)
        out.append({"x": x.tolist(), "z": z.tolist()})
    return out


def best_partition(x, price, least=3):
    """Every partition into levels of at least `least` values: the smallest sum of absolute deviations + price for each step."""
    n, best = len(x), (np.inf, None)
    for k in range(n // least):
        for cuts in itertools.combinations(range(1, n), k):
            edges = [0, *cuts, n]
            if any(b - a < least for a, b in zip(edges, edges[1:])):
                continue
            cost = sum(np.abs(x[a:b] - np.median(x[a:b])).sum() for a, b in zip(edges, edges[1:])) + price * k
            if cost < best[0] - 1e-12:
                best = (cost, edges[:-1])
    return best[1]


def steps():
    out = []
    for levels in ([(0.5, 12)], [(0.5, 7), (0.42, 8)], [(1.0, 5), (1.3, 5), (0.9, 6)]):
        x = np.concatenate([np.full(n, v) for v, n in levels]) + rng.normal(0, 0.01, sum(n for _, n in levels))
        sigma = np.median(np.abs(np.diff(x))) / (stats.norm.ppf(0.75) * np.sqrt(2))
        starts = best_partition(x, 3 * sigma * np.log(len(x)))
        ends = [*starts[1:], len(x)]
        out.append({"x": x.tolist(), "start": [int(s) for s in starts], "level": [float(np.median(x[a:b])) for a, b in zip(starts, ends)]})
    return out


data = {
    "made_with": f"scipy {scipy.__version__}, statsmodels {statsmodels.__version__}, numpy {np.__version__}",
    "wilson": wilson(),
    "errors": errors(),
    "bootstrap": bootstrap(),
    "paired": paired(),
    "holm": holm(),
    "detectable": detectable(),
    "ranks": ranks(),
    "modified_z": modified_z(),
    "steps": steps(),
}
with open(f"{sys.argv[1]}/stats.json", "w") as f:
    json.dump(data, f, indent=0, separators=(",", ":"))
    f.write("\n")
