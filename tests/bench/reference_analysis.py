#!/usr/bin/env python3
"""Row 9's comparison as a script: the usual analysis in Python against headscope, on one random GPT-2-shaped model.

  reference_analysis.py --library build/lib/libheadscope.so [--layers 12] [--heads 12] [--batch 4] [--tokens 256 1024]

The usual way reads a model again with eager attention, keeps every layer's T x T weights and takes an SVD of each
head's outputs. headscope's way takes q, k and z as the training forward has them: the Gram matrix of z with its
eigenvalues, and 16 sampled rows a head. Both are timed on the same tensors, interleaved, one thread, best of 7; the
participation ratios and the masses on the previous token of both must agree first. Needs torch of the version that
the library was built with, e.g. .venv/bin/python.
"""
import argparse
import math
import time

import torch

WIDTH = 64
ROWS = 16
REPETITIONS = 7


class Model(torch.nn.Module):
    """GPT-2's attention layers and MLPs with their initialisation; calls tap(layer, q, k, z) in every layer."""

    def __init__(self, layers, heads, context):
        super().__init__()
        self.heads, width = heads, heads * WIDTH
        self.embedding = torch.nn.Embedding(50257, width)
        self.positions = torch.nn.Embedding(context, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleDict({"norm": torch.nn.LayerNorm(width), "qkv": torch.nn.Linear(width, 3 * width),
                                 "out": torch.nn.Linear(width, width),
                                 "mlp": torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width),
                                                            torch.nn.GELU(), torch.nn.Linear(4 * width, width))})
            for _ in range(layers))
        for parameter in self.parameters():
            if parameter.dim() == 2:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, attend):
        batch, length = tokens.shape
        x = self.embedding(tokens) + self.positions(torch.arange(length))
        for layer, block in enumerate(self.blocks):
            q, k, v = (part.view(batch, length, self.heads, WIDTH).transpose(1, 2)
                       for part in block["qkv"](block["norm"](x)).chunk(3, dim=-1))
            x = x + block["out"](attend(layer, q, k, v).transpose(1, 2).reshape(x.shape))
            x = x + block["mlp"](x)


def sdpa(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def eager(q, k, v):
    hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH)).masked_fill(hidden, -math.inf)
    weights = scores.softmax(-1)
    return weights, weights @ v


def usual_way(q, k, v, rows):
    """Participation ratio and mean mass on the previous token of every head: [H] each."""
    weights, z = eager(q, k, v)
    ratios = []
    for head in z.transpose(0, 1).reshape(z.shape[1], -1, WIDTH):
        variances = torch.linalg.svdvals(head) ** 2
        ratios.append(variances.sum() ** 2 / (variances ** 2).sum())
    chosen = weights.diagonal(-1, 2, 3)[:, :, rows - 1]  # entry t - 1 of the diagonal belongs to row t
    return torch.stack(ratios), chosen.mean((0, 2))


def our_way(q, k, z, rows, plan):
    ops = torch.ops.headscope
    heads = z.shape[1]
    gram, total, shift = torch.zeros(heads, WIDTH, WIDTH), torch.zeros(heads, WIDTH), torch.zeros(heads, WIDTH)
    ops.accumulate_gram_(gram, total, torch.zeros(1, dtype=torch.long), z, shift)
    values = ops.symmetric_eigenvalues(gram)
    mass = ops.attention_mass(q, k, *plan, 1)[0]
    return values.sum(1) ** 2 / (values ** 2).sum(1), mass.mean((0, 2, 3))


def best_of(*candidates):
    best = [math.inf] * len(candidates)
    for _ in range(REPETITIONS):
        for i, candidate in enumerate(candidates):
            start = time.perf_counter()
            candidate()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def compare(arguments, length):
    torch.manual_seed(length)
    model = Model(arguments.layers, arguments.heads, length)
    tokens = torch.randint(50257, (arguments.batch, length))
    rows = (torch.randperm(length - 1)[:ROWS] + 1).sort().values
    sampled = rows.expand(arguments.batch, -1).contiguous()
    plan = sampled, (sampled - 1).flatten(), torch.arange(sampled.numel() + 1)
    taps = []

    def keep(_, q, k, v):
        taps.append((q, k, v, sdpa(q, k, v)))
        return taps[-1][-1]

    model(tokens, keep)
    for q, k, v, z in taps:
        for name, want, got in zip(("participation ratio", "mass on the previous token"), usual_way(q, k, v, rows),
                                   our_way(q, k, z, rows, plan)):
            torch.testing.assert_close(got.float(), want, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")

    def run(way):
        return [way(*tap) for tap in taps]

    usual, ours = best_of(lambda: run(lambda q, k, v, z: usual_way(q, k, v, rows)),
                          lambda: run(lambda q, k, v, z: our_way(q, k, z, rows, plan)))
    print(f"T = {length:5}: usual way {1e3 * usual / arguments.layers:9.2f} ms a layer, headscope "
          f"{1e3 * ours / arguments.layers:7.2f} ms: {usual / ours:.1f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libheadscope.so")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024], metavar="T")
    arguments = parser.parse_args()
    if min(arguments.tokens) <= ROWS:
        parser.error(f"--tokens {min(arguments.tokens)}: {ROWS} rows are sampled, so more than {ROWS} are needed")
    torch.set_num_threads(1)
    torch.ops.load_library(arguments.library)
    with torch.no_grad():
        for length in arguments.tokens:
            compare(arguments, length)


if __name__ == "__main__":
    main()
