#!/usr/bin/env python3
"""Markdown table of bench/results-*.jsonl. Usage: table.py FILE..."""
import json
import sys

for path in sys.argv[1:]:
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    first = rows[0]
    print(f"{first['threads']} threads, {first['simd']}, {first['peer']['peer']}\n")
    print("| step | ours, tokens/s | PyTorch | ratio | our fraction of the limit | PyTorch's | limit, GFLOP/s |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        theirs = r["peer"]["tokens_per_s_best"]
        fraction = theirs * r["gflop_per_token"] / r["limit_gflops"]
        print(f"| {r['row'].replace(' x ', ' × ')} | {r['tokens_per_s_best']:,.0f} | {theirs:,} | {r['ratio']:.2f} "
              f"| {r['fraction_of_limit']:.2f} | {fraction:.2f} | {r['limit_gflops']:.0f} |")
    print()
