"""Chat templates: SHA-256 of each template, and short conversations rendered and encoded by apply_chat_template.

    python chat_template.py FIXTURES LLAMA3_TOKENIZER QWEN3_TOKENIZER QWEN25_GGUF SMOLLM2_GGUF TINY_PAIR LLAMA31_TEMPLATE

LLAMA31_TEMPLATE is the chat template file of Llama-3.1-8B-Instruct (checked by its SHA-256; the tokenizer folder has the short
Llama-3 one).  It prints a date, here the fixed 26 Jul 2024 which is also its own default.
The first two are folders with tokenizer.json and tokenizer_config.json; the template of the GGUF files is their metadata key
tokenizer.chat_template.  Qwen3 is rendered with enable_thinking=False; date_string is given to all.
Writes FIXTURES/chat.json.  `prefix`, `suffix`: what stands before and after the last user content (texts), so that a context
can be put between them; `default_system`: the system text which the template adds by itself, or null
(Llama-3.1 puts it before a given system text, too; the others replace it).
"""
import json, sys
from transformers import AutoTokenizer
from common import gguf_tokenizer, sha256, write_json

USER = lambda text: dict(role="user", content=text)
ASSISTANT = lambda text: dict(role="assistant", content=text)
SYSTEM = lambda text: dict(role="system", content=text)
CASES = [
    ("user", [USER("Which river is the longest?")], True),
    ("user_no_generation", [USER("Which river is the longest?")], False),
    ("user_spaces", [USER("  two spaces before, a newline after\n")], True),
    ("user_unicode", [USER("Größe: 12 m², naïve café 東京 🙂\n\nRecall 482 137.")], True),
    ("user_special_text", [USER("The text <|end|> and </think> stays.")], True),
    ("system_user", [SYSTEM("Answer in one word."), USER("What colour is the sky?")], True),
    ("multi_turn", [USER("Name a metal."), ASSISTANT("Iron."), USER("Name another one.")], True),
    ("multi_turn_system", [SYSTEM("Be brief."), USER("One."), ASSISTANT(" Two. "), USER("Three."), ASSISTANT("Four."), USER("Five.")], True),
]
LLAMA31 = "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65"
MARK = "CONTEXT-GOES-HERE"


def folder_tokenizer(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.chat_template == json.load(open(path + "/tokenizer_config.json"))["chat_template"]
    return tokenizer


def with_template(tokenizer, path, sum):
    tokenizer.chat_template = open(path).read()
    assert sha256(tokenizer.chat_template) == sum
    return tokenizer


def main(fixtures, llama3, qwen3, qwen25, smollm2, pair, llama31_template):
    families = [("llama3", folder_tokenizer(llama3), None),
                ("llama3.1", with_template(folder_tokenizer(llama3), llama31_template, LLAMA31),
                 "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"),
                ("qwen3", folder_tokenizer(qwen3), None),
                ("qwen2.5", gguf_tokenizer(qwen25), "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
                ("smollm2", gguf_tokenizer(smollm2), "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
                ("tiny-pair", folder_tokenizer(pair + "/target"), None)]
    out = []
    for name, tokenizer, system in families:
        options = dict(enable_thinking=False, date_string="26 Jul 2024")
        render = lambda messages, generate: tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate, **options)
        cases = []
        for label, messages, generate in CASES:
            text = render(messages, generate)
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=generate, return_dict=False, **options)
            assert ids == tokenizer.encode(text, add_special_tokens=False)
            cases.append(dict(case=label, messages=messages, add_generation_prompt=generate, text=text, ids=ids))
        whole = render([USER(MARK)], True)
        prefix, suffix = whole.split(MARK)
        assert system is None or system in prefix
        out.append(dict(family=name, template_sha256=sha256(tokenizer.chat_template), default_system=system, prefix=prefix, suffix=suffix,
                        prefix_ids=tokenizer.encode(prefix, add_special_tokens=False), suffix_ids=tokenizer.encode(suffix, add_special_tokens=False),
                        cases=cases))
    write_json(f"{fixtures}/chat.json", dict(note="made by tests/oracle/chat_template.py", families=out))


if __name__ == "__main__":
    main(*sys.argv[1:])
