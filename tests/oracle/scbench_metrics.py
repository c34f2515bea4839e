"""SCBench's scores from the reference programs.

    python scbench_metrics.py FIXTURES SCBENCH

SCBENCH: the folder scbench of microsoft/MInference (compute_scores.py, repo_qa_utils.py; only functions are taken out of them, nothing
is installed). rouge_score, nltk and tree-sitter are the Python packages. Writes FIXTURES/scbench/metrics.json: scores, BLEU values and
what RepoQA takes out of an answer. All texts are ours: cases by hand, and word soup from a fixed seed.
"""
import ast
import json
import random
import re
import string
import sys
from collections import Counter

from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score import rouge_scorer

sys.argv, fixtures, scbench = sys.argv[:1] + [sys.argv[1]], sys.argv[1], sys.argv[2]
import scbench_functions  # noqa: E402


def functions_of(path, names, scope):
    tree = ast.parse(open(path, encoding="utf8").read())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    exec(compile(tree, path, "exec"), scope)
    return scope


UP = functions_of(scbench + "/compute_scores.py", {
    "normalize_zh_answer", "normalize_answer", "string_match_all", "f1_score", "qa_f1_score_zh", "first_int_match",
    "get_score_one_kv_retrieval", "get_score_one_passkey", "get_score_one_math_find", "get_score_one_longdialogue_qa_eng",
    "get_score_one_longbook_choice_eng", "get_score_one_longbook_qa_chn"},
    {"re": re, "string": string, "Counter": Counter, "tuple": tuple, "list": list})
REPOQA = functions_of(scbench + "/repo_qa_utils.py", {"compute_function_similarity"},
                      {"re": re, "SmoothingFunction": SmoothingFunction, "sentence_bleu": sentence_bleu})
ROUGE = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=False)

rows = []


def add(metric, answer, gold, score):
    rows.append({"metric": metric, "answer": answer, "gold": gold, "score": float(score)})


def kv():
    for answer in ["the value is \"ab-12\".", "AB-12", "", "ab-1 2", "xab-12y"]:
        add("substring", answer, ["ab-12"], UP["get_score_one_kv_retrieval"](answer, "ab-12", ""))
        record = {"id": 0, "turn_idx": 1, "prediction": answer, "ground_truth": "ab-12", "task": "scbench_kv", "lang": "go", "repo": "r"}
        add("kv_record", answer, ["ab-12"], UP["get_score_one_kv_retrieval"](record, "ab-12", ""))


def qa_eng():
    for answer, gold in [(" the Red House \n", "red house"), ("stra\u00dfe 7", "STRASSE"), ("no", "nobody"), ("", "x"), ("\u00c9cole", "\u00e9cole"), ("a", "")]:
        add("contains_any", answer, [gold], UP["get_score_one_longdialogue_qa_eng"](answer, [gold], ""))
    add("contains_any", "it was Ann", ["bob", "ANN"], 1)


def many_shot():
    for answer, gold in [("(A)", "A"), ("(B) because", "A"), ("B", "A"), ("xyz", "C"), ("The option is (D)", "D"), ("", "A"), ("(c)", "(C)"), ("(", "(A)")]:
        add("many_shot_upstream", answer, [gold], UP["get_score_one_longdialogue_qa_eng"](answer, gold, ""))


def vt():
    cases = [("VAR AB, cd and EF", ["ab", "CD", "EF"]), ("AB", ["AB", "CD", "EF"]), ("ab cd", ["AB", "CD", "EF", "GH", "IJ", "KL", "MN", "OP"]),
             ("x", ["AB"]), ("a", list("abcdefgh")), ("abc", list("abcdefgh")), ("abcde", list("abcdefgh")), ("abcdefg", list("abcdefgh")), ("", ["A"])]
    for answer, gold in cases:
        add("vt_match", answer, gold, UP["string_match_all"](answer, gold))


def qa_chn():
    cases = [("他在北京。", "北京"), ("北京", "北京"), ("", "北京"), ("《红楼梦》", "红楼梦"), ("红 楼\u3000梦 ABC", "abc红楼梦"), ("没有", "北京"), ("京京京北", "北京京"), ("‚京", "京")]
    for answer, gold in cases:
        add("qa_chn", answer, [gold], UP["get_score_one_longbook_qa_chn"](answer, [gold], ""))
        add("qa_chn_upstream", answer, [gold], UP["get_score_one_longbook_qa_chn"](answer, gold, ""))
    add("qa_chn", "甲乙丙", ["丁", "乙丙"], UP["get_score_one_longbook_qa_chn"]("甲乙丙", ["丁", "乙丙"], ""))


def choice():
    gold = ["a blue door", "C"]
    answers = ["C", "C. a blue door", "B", "D because C", " a blue door", "a blue door.", "the answer is: C", "the answer is:C", "answer:  C",
               "my answer is a blue door", "the answer is \"C\"", "the option is C", "option is B, answer: C", "answer is", "the answer is:", "The best is C",
               "I say\nBCD or C", "I say CD then C", "ABCD", "nothing", "", "   ", "E then C", "{C}", "it's C!", "answer is: a blue door",
               "answer isn't C", "Answer: C", "the  answer  is:  C", "-C-", "\u4e2d C", "answer:\u4e2dC"]
    for answer in answers:
        add("choice_abcd", answer, gold, UP["get_score_one_longbook_choice_eng"](answer, gold, ""))


def numbers():
    for answer in ["42", "-42", "it is 42.9!", "42.", "4 2", "about 1,042", "x42y43", "", "none", "0042", "42e3", "\uff14\uff12", "\u0664\u0662.5", "v.42", "1.42", "42.0.1"]:
        add("first_number", answer, ["42"], UP["get_score_one_math_find"](answer, 42, ""))
    for answer in ["The pass key is 00123.", "123", "x 00123 00124", "", "none", "1 00123", "\uff11 00123"]:
        add("first_integer", answer, ["00123"], UP["get_score_one_passkey"](answer, "00123", ""))


def soup(r, words, lines):
    out = []
    for _ in range(r.randrange(lines + 1)):
        out.append(" ".join(r.choice(words) for _ in range(r.randrange(9))))
    return "\n".join(out)


def rouge():
    r = random.Random(7)
    words = "the cat sat on a mat, The dog-house ran; far_away 3.5 \u212aelvin \u00e9t\u00e9 it's don't b c".split()
    cases = [("the cat\nsat down", "the cat sat\ndown"), ("a b c d e", "e d c b a"), ("", "x"), ("x", ""), ("a a a", "a a\na"), ("!!", "!!"), ("A B", "a b")]
    cases += [(soup(r, words, 6), soup(r, words, 6)) for _ in range(80)]
    for answer, gold in cases:
        add("rouge_lsum", answer, [gold], ROUGE.score(gold, answer)["rougeLsum"].fmeasure)


def bleu():
    r = random.Random(8)
    words = "if x > 0: return y ; else { a [i] }".split()
    pairs = [("a", "a"), ("a", "a b c d e"), ("", "a"), ("a b", "b a"), ("a b c", "a b c"), ("x y z", "a b c"), ("a b c d", "a b c d"), (" a\u00a0b\u3000c\u001cd ", "a b c d e"),
             ("the the the the", "the cat"), ("a b c d e f", "a b c d e f g h i j")]
    pairs += [(" ".join(r.choice(words) for _ in range(r.randrange(1, 30))), "\n ".join(r.choice(words) for _ in range(r.randrange(1, 30)))) for _ in range(80)]
    return [{"candidate": c, "reference": g, "bleu": float(REPOQA["compute_function_similarity"](c, g))} for c, g in pairs]


def sanitize(answer, lang):
    """repo_qa_utils.sanitize_output with today's tree-sitter in the place of tree_sitter_languages."""
    answer = answer.strip()
    blocks = re.findall(r"^```(?:\w+)?\s*\n(.*?)(?=^```)```", answer, re.DOTALL | re.MULTILINE)
    for block in blocks:
        code = block.encode()
        start, end = scbench_functions.first_function(lang, code)
        if start >= 0:
            return code[start:end].decode()
    return blocks[0] if blocks else answer


def blocks():
    f = "def f(a):\n    return a\n"
    answers = [f, f"```python\n{f}```", f"Here:\n```\n{f}```\nDone.", f"```py\n\n\n  {f}```", f"``` python\n{f}```", f"```c++\n{f}```\n```\n{f}```", f"```python\n{f}",
               f"```\nx = 1\n```\nand\n```python\n{f}```", "```\nx = 1\n```\n```\ny = 2\n```", f"  ```python\n{f}```", f"```python {f}```", f"```python\n{f}\n'''\n ```\n'''\n```",
               "", "```", "```\n```", f"```\n\n```\n{f}```", f"text ```python\n{f}```", "```python\nclass A:\n    @p\n    def f(a):\n        return a\n```", f"```日本\n{f}```", f"````\n{f}````"]
    return [{"lang": "python", "answer": a, "function": sanitize(a, "python")} for a in answers]


def main():
    for make in (kv, qa_eng, many_shot, vt, qa_chn, choice, numbers, rouge):
        make()
    with open(fixtures + "/scbench/metrics.json", "w") as f:
        json.dump({"scores": rows, "bleu": bleu(), "blocks": blocks()}, f, indent=1)
        f.write("\n")
    print(len(rows), "scores")


main()
