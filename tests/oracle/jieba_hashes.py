"""Writes the hashes of jieba's token lists for every Chinese row in the shared data.

    /usr/bin/python3 jieba_hashes.py SHARED_DATA OUT.json        (Debian's python3-jieba 0.42.1)

One hash a row: SHA-256, cut to 16 digits, of its tokens with a NUL behind each. A row's texts are the texts under KEYS in that order,
a list's items one by one, U+0001 for NUL. The texts themselves stay where they are.
"""
import hashlib
import json
import sys

import jieba

KEYS = ["context", "input", "answers", "pred", "prediction", "ground_truth", "gold", "origin_prompt"]
ZH = ["multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh"]
FILES = (
    ["longbench/data/%s.jsonl" % t for t in ("multifieldqa_zh", "passage_retrieval_zh")]
    + ["longbench/pred/llama2-7b-chat-4k/%s.jsonl" % t for t in ZH]
    + ["longbench/mini/MiniLongBench_%s.json" % t for t in ZH]
    + ["infinitebench/results/gpt4/preds_longbook_qa_chn.jsonl"]
)


def rows_of(path):
    with open(path, encoding="utf-8") as f:
        if path.endswith(".jsonl"):
            return [json.loads(line) for line in f]
        return list(json.load(f).values())


def texts_of(row):
    for key in KEYS:
        value = row.get(key)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield text


def row_hash(row):
    h = hashlib.sha256()
    for text in texts_of(row):
        for token in jieba.cut(text.replace("\0", "\1")):
            h.update(token.encode("utf-8") + b"\0")
    return h.hexdigest()[:16]


def main(shared, out):
    hashes = {name: [row_hash(row) for row in rows_of(shared + "/" + name)] for name in FILES}
    with open(out, "w") as f:
        json.dump(hashes, f, indent=0)
        f.write("\n")
    print(sum(map(len, hashes.values())), "rows")


main(*sys.argv[1:])
