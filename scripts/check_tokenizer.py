#!/usr/bin/env python3
"""Reads tokenizer.json back with the `tokenizers` package and compares its tokens with ours.

Usage: check_tokenizer.py FILE...   each FILE as written by the example `tokenizer_cases`:
{"tokenizer": <tokenizer.json>, "cases": [[text, tokens], ...]}
"""
import json
import sys

from tokenizers import Tokenizer

failed = compared = 0
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    tokenizer = Tokenizer.from_str(json.dumps(content["tokenizer"]))
    for text, wanted in content["cases"]:
        found = tokenizer.encode(text, add_special_tokens=False).ids
        compared += 1
        if found != wanted:
            failed += 1
            print(f"{path}: {text!r}: {found}, but ours are {wanted}")
print(f"{compared} texts compared, {failed} differ")
sys.exit(1 if failed or not compared else 0)
