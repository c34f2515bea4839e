"""Greedy answers of a real GGUF model, by transformers in fp32 on the dequantised weights.

    python real_answers.py FIXTURES NAME MODEL.gguf      writes FIXTURES/real/NAME.json and .safetensors

20 prompts through the model's own chat template: 14 short ones and 6 with a made-up text of 150 to 600 tokens.  32 new tokens at most,
stopping at any of `eos`.  `margin`: difference of the two best logits at each step; below 1e-3 another token is no fault.
Tensors, for the last prompt position of prompts `logit_prompts`: logits_every8 [2, ceil(V/8)] (ids 0, 8, 16, ..), top_ids and
top_logits [2, 64].
"""
import os, sys
import torch
from common import gguf_tokenizer, greedy, load, sha256, write_json, write_tensors

SHORT = [
    "What is the capital of Portugal?", "List three colours of the rainbow.", "Write a short sentence about a cat and a mirror.",
    "How many minutes are there in two hours?", "Translate 'good morning' into French.", "Which is heavier, a kilogram of iron or a kilogram of wool? Why?",
    "Give the next number: 2, 4, 8, 16,", "Write a C function that returns the larger of two integers.", "Explain in one sentence what a compass does.",
    "Name the four seasons.", "Is 91 a prime number?", "Write a Python one-liner that reverses a string s.", "What do bees make?",
    "Größe und Gewicht: was bedeuten diese Wörter auf Englisch?",
]
PEOPLE = ["Maren", "Osric", "Tilda", "Bruno", "Ysolde", "Pavel", "Renate", "Ingo", "Celeste", "Dario", "Hanne", "Lucan"]
THINGS = ["a copper kettle", "the green ledger", "two lanterns", "a coil of rope", "the spare key", "a jar of honey", "an old map", "the brass bell"]
PLACES = ["boat house", "north tower", "cellar", "mill", "chapel", "orchard", "stable", "harbour office"]
VERBS = ["left", "found", "hid", "repaired", "forgot", "painted", "counted"]


def story(sentences, number):
    """A dull but unambiguous text; the access code of each person occurs once."""
    lines = []
    for i in range(sentences):
        who, thing, place, verb = PEOPLE[(i * 5 + number) % 12], THINGS[(i * 3 + number) % 8], PLACES[(i * 7 + number) % 8], VERBS[(i + number) % 7]
        lines.append(f"On day {i + 1}, {who} {verb} {thing} in the {place}.")
        if i % 4 == 2:
            lines.append(f"The access code of {who} is {(i * 7919 + number * 104729) % 9000 + 1000}.")
    return " ".join(lines)


def prompts():
    yield from SHORT
    for number, (sentences, question) in enumerate([
            (8, "Who is mentioned on day 5?"), (10, "What is the access code of {who}?"), (14, "Which place was used on day 9?"),
            (18, "What is the access code of {who}?"), (22, "Summarise the text in one sentence."), (24, "What is the access code of {who}?")]):
        text = story(sentences, number)
        yield text + "\n\n" + question.format(who=PEOPLE[(6 * 5 + number) % 12])


def main(fixtures, name, path):
    tokenizer = gguf_tokenizer(path)
    model = load(os.path.dirname(path), gguf_file=os.path.basename(path))
    eos = sorted({tokenizer.eos_token_id} | {i for i in [tokenizer.convert_tokens_to_ids(t) for t in ("<|endoftext|>", "<|im_end|>")] if i is not None})
    rows, logits, chosen = [], [], [0, 17]
    for number, text in enumerate(prompts()):
        ids = tokenizer.apply_chat_template([dict(role="user", content=text)], add_generation_prompt=True, return_dict=False)
        answer, margin, first = greedy(model, ids, 32, stop=eos)
        rows.append(dict(prompt=text, ids=ids, answer=answer, margin=margin, answer_text=tokenizer.decode(answer)))
        if number in chosen:
            logits.append(first)
        print(name, number, len(ids), min(margin), repr(rows[-1]["answer_text"]), flush=True)
    top = [row.topk(64) for row in logits]
    write_tensors(f"{fixtures}/real/{name}.safetensors", dict(
        logits_every8=torch.stack([row[::8] for row in logits]), top_ids=torch.stack([t.indices.int() for t in top]),
        top_logits=torch.stack([t.values for t in top])))
    write_json(f"{fixtures}/real/{name}.json", dict(
        note="transformers on the GGUF file, fp32, eager attention, greedy", file=os.path.basename(path), file_sha256=sha256(open(path, "rb").read()),
        eos=eos, logit_prompts=chosen, vocabulary=len(first), prompts=rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
