"""Makes harness/papers/published.json: the published figures that `kvbench paper` sets its own beside.

    python tests/oracle/published.py ../shared/data > harness/papers/published.json

Reads published/published.json (one record a figure) and ruler/results/kvpress_leaderboard_raw.csv (one row a run; its ratio is
the share removed); SnapKV's own table stands below. Writes one line a record: figures of the same source, model, method, protocol, length and share kept. Names of
methods and tasks become kvbench's; what kvbench does not have keeps its own. Facts and figures only.
"""
import csv
import json
import sys

EN16 = ("narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique gov_report qmsum multi_news trec triviaqa samsum "
        "passage_count passage_retrieval_en lcc repobench-p").split()
ALL21 = EN16 + "multifieldqa_zh dureader vcsum lsht passage_retrieval_zh".split()
RULER13 = ("niah_single_1 niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multivalue "
           "niah_multiquery vt cwe fwe qa_1 qa_2").split()
KVZIP = "kv prefix_suffix repoqa qa_eng choice_eng summary vt mf many_shot".split()

# how: how the figures were read. data: kinds of rows (as kvbench names them) that are the source's own; [] = not known.
# differs: why no figure of ours is the same measurement, whatever model and length; "" = nothing known.
SOURCES = {
    "proxykv": dict(title="arXiv:2605.16360 (ProxyKV)", how="printed", template="not stated", data=[], differs=""),
    "lkv": dict(title="arXiv:2605.06676 (LKV)", how="printed", template="not stated", data=[], differs=""),
    "kvzip": dict(title="snu-mllab/KVzip images/benchmark.png @5d84729", how="read off a figure", template="chat", data=[],
                  differs="KVzip's own copy of the data, instruction and scoring rules"),
    "kvzip-kvpress": dict(title="kvpress PR #93 (KVzip authors)", how="printed", template="chat", data=["rows", "upstream oct2024"],
                          differs=""),
    "compactor": dict(title="kvpress PR #143", how="printed", template="chat", data=["rows", "upstream oct2024"], differs=""),
    "leaderboard": dict(title="kvpress leaderboard, snapshot in lapidoty/kvpress-centrality @403f489", how="printed",
                        template="chat", data=["rows", "upstream oct2024"], differs=""),
    "inertiakv": dict(title="InertiaKV paper, table 4 (third party)", how="printed", template="not stated", data=[], differs=""),
    "kvzap": dict(title="arXiv:2601.07891 (KVzap)", how="printed", template="chat", data=["rows", "upstream oct2024"], differs=""),
    "snapkv": dict(title="arXiv:2404.14469 (SnapKV), table 1", how="printed", template="not stated", data=[], differs=""),
    "ruler": dict(title="NVIDIA/RULER README", how="printed", template="chat", data=["upstream current"], differs=""),
}

# Table 1 of arXiv:2404.14469 (two text copies of the paper read, digit by digit): LongBench's 16 English tasks in the order of EN16.
# The question stands in the observation window. Budgets are tokens; the paper gives the share kept on average for two of them
# (92 % and 68 % go). H2O's budget: 4,096.
SNAPKV_SHARE = {0: 1.0, 1024: 0.08, 2048: None, 4096: 0.32}
SNAPKV = {
    "LWM-Text-Chat-1M": {
        ("full", 0): "18.18 25.56 40.94 24.57 19.39 10.49 27.97 24.9 24.81 71.0 60.9 39.73 3.17 3.5 44.4 43.82",
        ("snapkv", 1024): "18.02 23.73 40.25 24.61 19.84 10.77 19.79 24.44 23.53 70.0 61.42 39.64 1.67 3.0 43.34 44.0",
        ("snapkv", 2048): "17.92 25.03 41.38 24.49 19.38 11.34 21.6 24.22 24.36 70.0 61.11 39.91 2.17 4.0 44.46 44.92",
        ("snapkv", 4096): "17.92 25.47 40.76 24.92 19.53 11.27 25.34 25.42 24.58 70.5 61.08 39.62 3.17 4.0 44.49 44.08",
        ("h2o", 4096): "13.17 24.82 20.01 16.86 9.74 7.2 25.77 23.26 23.83 71.0 61.06 40.33 0.0 0.0 41.52 40.97",
    },
    "LongChat-7b-v1.5-32k": {
        ("full", 0): "20.88 29.36 43.2 33.05 24.58 14.66 30.89 22.76 26.61 66.5 83.99 40.83 0.0 30.5 54.89 59.05",
        ("snapkv", 1024): "19.32 26.6 37.93 34.15 23.34 12.71 23.45 21.81 24.93 65.0 80.88 38.19 0.0 31.0 53.63 57.62",
        ("snapkv", 2048): "19.28 28.81 40.26 35.31 23.75 13.44 26.3 22.29 25.73 66.0 79.93 39.59 0.0 31.0 56.05 58.61",
        ("snapkv", 4096): "20.68 29.34 42.21 33.95 24.88 14.15 28.55 23.11 26.45 66.0 81.25 40.52 0.0 29.5 54.79 58.81",
        ("h2o", 4096): "19.31 28.3 37.75 30.51 23.06 11.76 27.55 21.37 26.49 66.0 75.8 39.92 0.0 25.5 53.56 55.53",
    },
    "Mistral-7B-Instruct-v0.2": {
        ("full", 0): "26.82 33.06 49.28 42.77 27.33 19.27 32.85 24.25 27.06 71.0 86.23 42.98 2.75 86.98 55.51 52.88",
        ("snapkv", 1024): "25.54 29.51 49.25 40.94 25.7 19.42 25.89 23.82 26.11 69.5 86.48 42.06 2.98 88.56 55.65 51.87",
        ("snapkv", 2048): "25.89 32.47 48.6 41.71 27.31 18.69 28.81 24.5 26.6 70.0 86.27 42.47 3.09 87.43 55.93 52.01",
        ("snapkv", 4096): "26.41 33.36 49.81 42.32 27.93 18.76 30.74 24.19 27.08 71.0 86.25 43.01 2.73 86.18 55.62 52.65",
        ("h2o", 4096): "22.61 29.06 47.22 36.54 20.6 16.25 30.0 23.8 26.75 70.5 86.16 42.97 3.46 86.38 53.72 51.1",
    },
    "Mixtral-8x7B-Instruct-v0.1": {
        ("full", 0): "26.81 37.06 51.55 47.77 32.46 26.59 34.25 26.05 27.91 76.0 90.57 46.98 5.5 100.0 69.07 69.65",
        ("snapkv", 1024): "26.01 34.65 51.58 48.23 32.67 25.92 27.77 25.0 27.25 74.5 90.42 46.48 5.5 99.5 69.02 68.98",
        ("snapkv", 2048): "27.12 36.9 51.91 47.46 33.23 26.27 30.19 25.84 27.8 76.0 90.24 46.31 5.5 100.0 68.72 70.01",
        ("snapkv", 4096): "26.46 37.03 52.62 47.71 33.35 26.45 32.64 25.87 27.94 75.5 90.71 47.14 5.5 100.0 68.81 69.56",
        ("h2o", 4096): "20.45 32.09 48.02 34.76 25.69 16.5 29.76 23.53 26.84 74.5 90.24 47.1 7.06 99.42 64.91 63.52",
    },
}
SOURCE_OF = {s["title"]: name for name, s in SOURCES.items()}
METHODS = {"adakv+expected_attention": "expected-attention@ada"}
SUBSETS = {
    "4096, mean of 13": ("ruler: mean of 13", 4096), "8192, mean of 13": ("ruler: mean of 13", 8192),
    "16384, mean of 13": ("ruler: mean of 13", 16384), "32768, mean of 13": ("ruler: mean of 13", 32768),
    "65536, mean of 13": ("ruler: mean of 13", 65536), "131072, mean of 13": ("ruler: mean of 13", 131072),
    "16 English tasks, mean": ("longbench: mean of 16 English", 0), "21 tasks, mean": ("longbench: mean of 21", 0),
    "8 tasks, mean": ("longbench: mean of 8", 0), "passage_retrieval_en": ("longbench-passage_retrieval_en", 0),
    "passage_retrieval_zh": ("longbench-passage_retrieval_zh", 0), "triviaqa": ("longbench-triviaqa", 0),
    "200k tokens KV": ("KV cache, GB", 200000),
    "prefill speed-up over kvzip, dual GPU, best": ("TTFT of kvzip over its own", 0),
    "prefill speed-up over kvzip, one shared GPU": ("TTFT of kvzip over its own", 0),
    "recovery of kvzip's mean accuracy": ("share of kvzip's mean score, %", 0),
    "niah acc": ("KVzip's needles", 0), "squad acc": ("squad", 0), "gsm8k acc": ("gsm8k", 0),
}
TOPOLOGY = {"prefill speed-up over kvzip, dual GPU, best": "dual", "prefill speed-up over kvzip, one shared GPU": "shared"}
PRESSES = {
    "no_press": "full", "random": "random", "snapkv": "snapkv", "pyramidkv": "pyramidkv", "streaming_llm": "streaming-llm",
    "knorm": "knorm", "keydiff": "keydiff", "lagkv": "lagkv", "tova": "tova", "kvzip": "kvzip",
    "expected_attention": "expected-attention@ada", "adakv_snapkv": "ada-snapkv",
}


def tolerance(how):
    return float(how.split("+-")[1]) if "+-" in how else 0.0


def task_of(subset):
    if subset in SUBSETS:
        return SUBSETS[subset]
    name = subset.split()[0]
    return (name.replace("scbench_", "scbench-", 1), 0)


def from_records(path):
    out = {}
    for r in json.load(open(path)):
        source = SOURCE_OF[r["source"]]
        task, length = task_of(r["subset"])
        key = (source, r["model"], METHODS.get(r["method"], r["method"]), {"query-agnostic": "agnostic", "-": ""}[r["protocol"]],
               TOPOLOGY.get(r["subset"], ""), length, r["retained"], tolerance(r["how"]), r["note"])
        values = out.setdefault(key, {})
        assert task not in values, (key, task)
        values[task] = r["value"]
    return out


def from_leaderboard(path):
    out = {}
    for r in csv.DictReader(open(path)):
        if r["press_name"] not in PRESSES:
            continue
        protocol = "" if r["press_name"] == "no_press" else "aware" if r["query_aware"] == "True" else "agnostic"
        key = ("leaderboard", r["model"].split("/")[1], PRESSES[r["press_name"]], protocol, "", 4096,
               round(1 - float(r["configured_ratio"]), 6), 0.0, "")
        out[key] = {"ruler: mean of 13": float(r["score_macro13"]), **{"ruler-" + t: float(r[t]) for t in RULER13}}
    return out


def snapkv_rows():
    """One record a row of the table, with its budget."""
    for model, rows in SNAPKV.items():
        for (method, tokens), text in rows.items():
            scores = [float(x) for x in text.split()]
            assert len(scores) == len(EN16), (model, method, tokens)
            r = dict(source="snapkv", model=model, method=method, protocol="" if method == "full" else "aware", length=0,
                     retained=SNAPKV_SHARE[tokens])
            if tokens:
                r["budget_tokens"] = tokens
            yield {**r, "values": {"longbench-" + t: x for t, x in zip(EN16, scores)}}


def main(data):
    records = from_records(data + "/published/published.json")
    records.update(from_leaderboard(data + "/ruler/results/kvpress_leaderboard_raw.csv"))
    sets = {"ruler: mean of 13": ["ruler-" + t for t in RULER13], "longbench: mean of 16 English": ["longbench-" + t for t in EN16],
            "longbench: mean of 21": ["longbench-" + t for t in ALL21], "longbench: mean of 8": [],
            "scbench: KVzip's tasks": ["scbench-" + t for t in KVZIP]}
    line = lambda x: json.dumps(x, ensure_ascii=False)
    print("{")
    print('"about": ' + line("Published figures, as printed or read off; scores in points of 100. Made by tests/oracle/published.py. "
                             "length 0 and retained null: not stated. values: by kvbench's task names or a set's.") + ",")
    print('"sources": {\n' + ",\n".join(line(k) + ": " + line(v) for k, v in SOURCES.items()) + "\n},")
    print('"sets": {\n' + ",\n".join(line(k) + ": " + line(v) for k, v in sets.items()) + "\n},")
    rows = []
    for (source, model, method, protocol, topology, length, retained, tol, note), values in records.items():
        r = dict(source=source, model=model, method=method, protocol=protocol, length=length, retained=retained)
        if topology:
            r["topology"] = topology
        if tol:
            r["tolerance"] = tol
        if note:
            r["note"] = note
        rows.append(line({**r, "values": values}))
    rows += [line(r) for r in snapkv_rows()]
    print('"records": [\n' + ",\n".join(rows) + "\n]\n}")


main(sys.argv[1])
