#!/usr/bin/env python3
"""Opens an exported model and a run's checkpoints with the public readers.

Usage: check_files.py EXPORTED_DIR RUN_DIR
"""
import json
import pathlib
import sys

from safetensors.numpy import load_file
from tokenizers import Tokenizer

exported, run = map(pathlib.Path, sys.argv[1:3])
weights = load_file(exported / "model.safetensors")
tokenizer = Tokenizer.from_file(str(exported / "tokenizer.json"))
config = json.loads((exported / "config.json").read_text())
vocab, hidden = weights["out.weight"].shape
assert tokenizer.get_vocab_size() == vocab == config["vocab"], "vocabulary sizes differ"
assert hidden == config["hidden"] and weights["embed.weight"].shape == (vocab, config["embed"])
best = load_file(run / "checkpoints" / "best.safetensors")
for name, tensor in weights.items():
    assert (best[name] == tensor).all(), f"{name} differs from the checkpoint"
with open(run / "record.jsonl", encoding="utf-8") as record:
    events = [json.loads(line)["event"] for line in record]
assert events[0] == "start" and "eval" in events and "end" in events, events
print(f"{len(weights)} tensors, {vocab} words, {len(events)} events: all read back")
