"""The hub cache as the Python package huggingface_hub lays it out, for the made-up repositories of tests/hubserver: every path with
what it is (a link's target, a file's SHA-256).  usage: hub_layout.py FIXTURES HUBSERVER"""
import hashlib, os, subprocess, sys, tempfile

fixtures, server = sys.argv[1:]
hub = subprocess.Popen([server], stdout=subprocess.PIPE, text=True)
cache = tempfile.mkdtemp()
os.environ.update(HF_ENDPOINT=hub.stdout.readline().strip(), HF_HUB_CACHE=cache, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1")

from common import write_json
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError

MODEL = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json", "model-*.safetensors"]
snapshot_download("org/tiny", allow_patterns=MODEL)
for optional in ["generation_config.json", "chat_template.jinja", "special_tokens_map.json"]:
    try:
        hf_hub_download("org/tiny", optional)
    except EntryNotFoundError:
        pass
snapshot_download("org/data", repo_type="dataset")
hub.kill()

rows = {}
for folder, _, names in os.walk(cache):
    for name in names:
        path = os.path.join(folder, name)
        where = os.path.relpath(path, cache)
        if os.path.islink(path):
            rows[where] = "-> " + os.readlink(path)
        elif where == "CACHEDIR.TAG":  # its words are each program's own
            rows[where] = open(path).readline().strip()
        else:
            rows[where] = hashlib.sha256(open(path, "rb").read()).hexdigest()
write_json(os.path.join(fixtures, "hub", "layout.json"), dict(sorted(rows.items())))
