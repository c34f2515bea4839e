"""Greedy answers of the tiny pair, by transformers in fp32, on 100 samples.

    python tiny_pair_answers.py FIXTURES TINY_PAIR TRAINER     TINY_PAIR: folder with target/ and proxy/; TRAINER: the built
                                                               tinypair program, whose `cases` command makes the samples

Each sample is one context with one question: prefix ids (template head), context ids, question ids (newline .. assistant header);
the prompt is their concatenation.  Answers hold the stop token when it came within 64 tokens.
"""
import subprocess, sys
from transformers import AutoTokenizer
from common import greedy, load, sha256, write_json

NEWLINE, END, USER, ASSISTANT = 26, 2, 3, 4
KINDS, LENGTHS = ["multikey", "twoword", "multivalue", "multiquery"], [(256, 10), (512, 10), (1024, 5)]


def cases(trainer, kind, length, want):
    seed = length
    while want:
        seed += 1
        line = subprocess.run([trainer, "cases", kind, str(length), "1", str(seed), "0", "1"], capture_output=True, text=True, check=True).stdout
        ids = [int(x) for x in line.split()]
        if NEWLINE not in ids:
            continue  # by chance nothing to ask
        at, end = ids.index(NEWLINE), ids.index(ASSISTANT) + 1
        yield ids[:2], ids[2:at], ids[at:end], ids[end:ids.index(END, end) + 1]
        want -= 1


def main(fixtures, pair, trainer):
    tokenizer = AutoTokenizer.from_pretrained(pair + "/target")
    models, rows = {name: load(f"{pair}/{name}") for name in ("target", "proxy")}, []
    right = dict(target=0, proxy=0)
    for kind in KINDS:
        for length, count in LENGTHS:
            for prefix, context, question, gold in cases(trainer, kind, length, count):
                row = dict(kind=kind, length=length, prefix=prefix, context=context, question=question, gold=gold)
                row["context_text"] = tokenizer.decode(context)
                row["question_text"] = tokenizer.decode(question[1:-2])
                row["gold_text"] = tokenizer.decode(gold[:-1]).strip()
                rendered = tokenizer.apply_chat_template([dict(role="user", content=row["context_text"] + "\n" + row["question_text"])],
                                                         add_generation_prompt=True, return_dict=False)
                assert rendered == prefix + context + question
                for name, model in models.items():
                    answer, margin, _ = greedy(model, rendered, 64, stop=(END,))
                    row[name], row[name + "_margin"] = answer, min(margin)
                    right[name] += answer == gold
                rows.append(row)
            print(kind, length, len(rows), right, flush=True)
    write_json(f"{fixtures}/tiny_pair_answers.json", dict(
        note="transformers greedy, fp32, eager attention, 64 new tokens at most, stop at id 2; *_margin: least top-2 logit margin of the answer",
        sha256={name: sha256(open(f"{pair}/{name}/model.safetensors", "rb").read()) for name in models}, right=right, samples=rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
