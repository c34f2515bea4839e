"""Token ids (no special tokens added) of strings which the golden tokenizer vectors do not cover.

    python tokenizer_extra.py FIXTURES LLAMA3_TOKENIZER QWEN3_TOKENIZER SMOLLM2_GGUF TINY_PAIR

Text which spells a special token is encoded as that token (the reference's default).  `decoded` is the decoding with specials kept,
without any clean-up of spaces.  Writes FIXTURES/tokenizer_extra.json.
"""
import sys
from tokenizers import Tokenizer
from common import gguf_tokenizer, write_json

STRINGS = [
    "", " ", "  ", "\n", "\n\n\n", "\t\tx", " \n \n  end", "trailing   ", "   leading", "a  b   c    d", "\r\nline\r\n\r\nnext\rlast",
    "0", "1234567890", "7 77 777 7777 77777", "v1.2.3-rc4, 10:45, 3,141.59", "x12y345z6789", "  5 apples and  12 pears", "½ ² ³ Ⅷ ٣٤٥ १२३",
    "don't we'll I'M THEY'RE it's 'quoted' ''", "Hello,world!(really?)[yes]{no}<ok>", "http://example.org/a_b?c=d&e=%20#f", "snake_case camelCase kebab-case",
    "caf\u00e9 cafe\u0301 a\u030a\u0323 \u1e69 s\u0307\u0323", "\u0041\u030a\u212b \ufb01ne \uff21\uff22", "\ud55c\uae00 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "Der Fluß fließt über größere Täler", "Привет, мир! Ёлка", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก",
    "東京都と大阪府、日本語。", "混合 mixed 한국어 текст",
    "🙂🙃 👩‍👩‍👧‍👦 🇫🇷 👍🏽", "a\u200bb\u00a0c\u2003d\u3000e", "\u0001\u0002\u001b[0m\u007f", "\ufeffBOM \ufffd \U0010ffff",
    "zero\u200dwidth\u200cjoin",
    "Code amber 482 137. Recall amber falcon.", "The harbor lifted a map.\nRecall rhino, otter.", "Repeat the text. 007 070 700",
    "<|endoftext|> <|im_start|>user\nhi<|im_end|>", "<|begin_of_text|><|eot_id|> <|start_header_id|>",
    "<|begin|><|user|>x<|end|><|assistant|> y", "<think>\n\n</think>\n\nok", "<|im_start| > <|im_end", "<|reserved_special_token_5|>",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];\n    }\n", "\u00e9" * 20, "ab" * 40, "=" * 33 + "-" * 7, "\ud7a3\u0006" + "z" * 5 + "\u0301\u0301",
]


def main(fixtures, llama3, qwen3, smollm2, pair):
    raw = lambda folder: Tokenizer.from_file(folder + "/tokenizer.json")
    tokenizers = [("llama3", raw(llama3)), ("qwen3", raw(qwen3)), ("smollm2", gguf_tokenizer(smollm2).backend_tokenizer), ("tiny-pair", raw(pair + "/target"))]
    rows = []
    for text in STRINGS:
        row = dict(text=text)
        for name, tokenizer in tokenizers:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            row[name] = ids
            back = tokenizer.decode(ids, skip_special_tokens=False)
            if back != text:
                row[name + "_decoded"] = back
        rows.append(row)
    write_json(f"{fixtures}/tokenizer_extra.json", dict(
        note="made by tests/oracle/tokenizer_extra.py; NAME_decoded only where decoding does not give the text again", strings=rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
