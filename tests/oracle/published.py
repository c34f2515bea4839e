"""Makes harness/papers/published.json: the published figures that `kvbench paper` sets its own beside.

    python tests/oracle/published.py ../shared/data > harness/papers/published.json

Reads published/published.json (one record a figure) and ruler/results/kvpress_leaderboard_raw.csv (one row a run; its ratio is
the share removed). Writes one line a record: figures of the same source, model, method, protocol, length and share kept. Names of
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
    "ruler": dict(title="NVIDIA/RULER README", how="printed", template="chat", data=["upstream current"], differs=""),
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
    print('"records": [\n' + ",\n".join(rows) + "\n]\n}")


main(sys.argv[1])
