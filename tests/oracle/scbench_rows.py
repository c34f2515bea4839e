"""Two rows for each of SCBench's 12 tasks, in its format, all of our own making.

    python scbench_rows.py FIXTURES

Writes FIXTURES/scbench/scbench_<task>.jsonl. Small, but with every form the real files have: lists as contexts and answers, rows with
more and with fewer turns than are used, sub-tasks by turn, texts with braces, quotes, blanks at the ends and other scripts.
"""
import json
import sys


def turn(text, answer, **more):
    return {"input": text, "answer": answer, **more}


def kv(i):
    pairs = {f"key-{i}-{k}": f"value-{k * 7 + i}" for k in range(12)}
    return {"id": i, "context": json.dumps(pairs),
            "multi_turns": [turn(f'Key: "key-{i}-{k}"\nIts value: ', f"value-{k * 7 + i}") for k in (3, 11, 0, 5, 9)]}


def prefix_suffix(i):
    words = [f"qx{k}{'zyxw'[k % 4]}m{k * k}" for k in range(20)]
    return {"context": "Strings: " + ", ".join(words) + ".",
            "multi_turns": [turn(f"Which string begins with qx{k}{'zyxw'[k % 4]} and ends with {k * k}?", words[k]) for k in (i, i + 5, i + 9, 2, 1)]}


def vt(i):
    chain = [f"V{c}" for c in "ABCDE"]
    text = " ".join([f"LET {chain[0]} = {40 + i}."] + [f"Nothing happens here. LET {b} = {a}." for a, b in zip(chain, chain[1:])])
    return {"id": i, "context": text + " ", "multi_turns": [turn(f"Which variables hold {40 + i}? Name {n}.", chain[:n]) for n in (5, 2, 1, 3, 4)]}


REPOS = [("python", "ours/alpha", [("mean", "def mean(xs):\n    return sum(xs) / len(xs)"), ("peak", "def peak(xs):\n    return max(xs, default=0)"),
                                   ("twice", "def twice(x):\n    y = x + x\n    return y")]),
         ("go", "ours/beta", [("Mean", "func Mean(a, b int) int {\n\treturn (a + b) / 2\n}"), ("Peak", "func Peak(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}"),
                              ("Zero", "func Zero() int {\n\treturn 0\n}")])]


def repoqa(i):
    lang, repo, functions = REPOS[i]
    return {"id": i, "lang": lang, "repo": repo, "context": "\n\n".join(f"# file {n}\n{f}" for n, f in functions),
            "multi_turns": [turn(f"Function description: number {k} of {repo}. Repeat it.", functions[k][1], name=functions[k][0]) for k in (1, 0, 2)]}


def repoqa_and_kv(i):
    row = repoqa(i)
    code = [{**t, "task": "scbench_repoqa"} for t in row["multi_turns"]]
    keys = [turn(f"Value of k{k}?", f"v-{k}{i}", task="scbench_kv") for k in range(5)]
    row["context"] += '\n{"k0": "v-00", "k1": "v-10"}'
    row["multi_turns"] = [code[0], keys[0], keys[1], code[1], keys[2], code[2], keys[3], keys[4]]
    return row


def qa_eng(i):
    asked = [("Who keeps the lighthouse?", "Mara Ellin"), ("What colour is her boat?", "green {and white}"), ("When does she leave?", "at dawn"),
             ("Why?", "the \"storm\""), ("Where to?", "Port Ansel"), ("With whom?", "nobody")]
    return {"id": i, "context": "Mara Ellin kept the lighthouse. Her boat was green {and white}. At dawn she left for Port Ansel.\n",
            "multi_turns": [turn(q, a) for q, a in asked[:2 + 4 * i]]}


def qa_chn(i):
    return {"id": i, "context": "阿明住在山里。他养了一只狗。",
            "multi_turns": [turn("阿明住在哪里？", "山里"), turn("他养了什么？", "一只狗")][: 1 + i]}


def choice_eng(i):
    options = ["a lamp", "a map", "a \"key\"", "a rope, été"]
    return {"id": i, "context": "In the chest lay a \"key\" and, below it, a map.",
            "multi_turns": [turn("What lay on top?", options[2], options=options), turn("What lay below?", options[1], options=options[::-1]),
                            turn(" What was missing? ", options[0], options=options)]}


def many_shot(i):
    shots = "\n\n".join(f"Q: {a} plus {b}?\n(A) {a + b}\n(B) {a - b}\nA: (A)" for a, b in ((1, 2), (3, 1), (5, 4)))
    return {"id": i, "task": "sums", "context": shots, "multi_turns": [turn(f"Q: {k} plus 1?\n(A) {k}\n(B) {k + 1}\nA:", "B") for k in range(5)]}


def mf(i):
    numbers = [3, 14, 15, 92, 6, 53, -5, 0][i:]
    asked = [("The largest number above is: ", 92), ("Look. The Second Largest number of the list is what is next: ", 53), ("The median is: ", 14),
             ("The smallest number is: ", -5), ("The third largest number is: ", 15), ("The number of numbers is: ", 8)]
    return {"id": i, "context": numbers, "multi_turns": [turn(q, a) for q, a in asked]}


def summary(i):
    paper = "We study lamps. Lamps shine. " * 3
    return {"id": i, "context": f"Paper one: {paper}\nPaper two: {paper}",
            "multi_turns": [turn(f"Summarise paper {k}.", f"It studies lamps,\nnumber {k}.") for k in ("one", "two", "three", "four", "five")]}


def summary_with_needles(i):
    row = summary(i)
    texts = [{**t, "task": "scbench_summary"} for t in row["multi_turns"][:3]]
    keys = [turn(f"What is pass key {k}?", f"00{k}57", task="scbench_passkey") for k in range(5)]
    row["context"] += " The pass key 0 is 00057."
    row["multi_turns"] = [texts[0], keys[0], texts[1], keys[1], texts[2], keys[2], keys[3], keys[4]]
    return row


def main():
    for make in (kv, prefix_suffix, vt, repoqa, repoqa_and_kv, qa_eng, qa_chn, choice_eng, many_shot, mf, summary, summary_with_needles):
        with open(f"{sys.argv[1]}/scbench/scbench_{make.__name__}.jsonl", "w", encoding="utf8") as f:
            for i in range(2):
                f.write(json.dumps(make(i), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
