"""The prompts upstream's own code makes of our rows: hashes only.

    python scbench_prompts.py FIXTURES EVAL_UTILS.py LLAMA31.jinja QWEN25.jinja

EVAL_UTILS.py: scbench/eval_utils.py of microsoft/MInference; its two functions which build prompts and its template tables are run as
they are, with a stand-in tokenizer that only renders the chat template. Rows are cut to 5 turns as run_scbench.py does. Writes
FIXTURES/scbench/prompts.json: SHA-256 and bytes of everything the model has before it when it answers a turn.
"""
import ast
import hashlib
import json
import re
import sys

import jinja2

fixtures, eval_utils = sys.argv[1:3]
TEMPLATES = {"raw": None, "llama-3.1": sys.argv[3], "qwen2.5": sys.argv[4]}
TASKS = ["kv", "prefix_suffix", "vt", "repoqa", "qa_eng", "qa_chn", "choice_eng", "many_shot", "mf", "summary", "summary_with_needles", "repoqa_and_kv"]
MAX_TURNS = 5


def upstream():
    tree = ast.parse(open(eval_utils, encoding="utf8").read())
    wanted = {"create_scdq_prompt", "create_multiturn_prompt", "get_ground_truth"}
    tree.body = [n for n in tree.body if isinstance(n, ast.Assign) or isinstance(n, ast.FunctionDef) and n.name in wanted]
    scope = {"re": re, "str": str, "dict": dict}
    exec(compile(tree, eval_utils, "exec"), scope)
    return scope


class Tokenizer:
    """apply_chat_template as transformers renders it."""

    def __init__(self, path):
        env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        env.globals["raise_exception"] = lambda text: (_ for _ in ()).throw(ValueError(text))
        env.filters["tojson"] = json.dumps
        self.template = env.from_string(open(path, encoding="utf8").read())
        self.bos = "<|begin_of_text|>" if "llama" in path else ""

    def apply_chat_template(self, messages, add_generation_prompt, tokenize):
        assert not tokenize
        return self.template.render(messages=messages, add_generation_prompt=add_generation_prompt, bos_token=self.bos, tools=None)


def seen(up, row, task, mode, tok):
    """What stands before the answer of each turn."""
    if mode == "multi-request":
        prompts = up["create_scdq_prompt"](row, "scbench_" + task, tok, tok is not None)["prompts"]
        return [prompts[0] + p for p in prompts[1:]]
    prompts = up["create_multiturn_prompt"](row, "scbench_" + task, tok, tok is not None)["prompts"]
    return ["".join(prompts[:k + 1]) for k in range(len(prompts))]


def main():
    up, out = upstream(), []
    for task in TASKS:
        rows = [json.loads(line) for line in open(f"{fixtures}/scbench/scbench_{task}.jsonl", encoding="utf8")]
        if len(rows[0]["multi_turns"]) > MAX_TURNS:
            rows = [{**row, "multi_turns": row["multi_turns"][:MAX_TURNS]} for row in rows]
        for i, row in enumerate(rows):
            golds = up["get_ground_truth"](row, "scbench_" + task)
            for mode in ("multi-turn", "multi-request"):
                for template, path in TEMPLATES.items():
                    for k, text in enumerate(seen(up, row, task, mode, Tokenizer(path) if path else None)):
                        data = text.encode()
                        out.append({"task": "scbench-" + task, "row": i, "mode": mode, "template": template, "turn": k, "gold": golds[k],
                                    "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    with open(fixtures + "/scbench/prompts.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")
    print(len(out), "prompts")


main()
