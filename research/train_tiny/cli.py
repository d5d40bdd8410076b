"""The command line; each command fills a part of the directory given by --out."""

import argparse
import json
import os
import sys

import torch

from . import lines
from .compress import prompts as compress_prompts
from .compress import rows as compress_rows
from .compress import schedule as compress_schedule
from .compress import trajectories
from .decode import METHODS
from .evaluate import evaluate, table
from .export import export_model
from .gguf import llada_weights, tokenizer_of
from .golden import read_items, write_golden, write_half_decodes
from .model import Llada, ModelConfig
from .recipes import RECIPES
from .tokenizer import Tokenizer, train_merges
from .train import Trainer, load_checkpoint, run
from .tri import evaluate as tri_evaluate
from .tri import export as tri_export
from .tri import golden as tri_golden
from .tri.adapter import FOLDER, AdapterTrainer, write_adapter
from .verify import verify

HELD_OUT = 500
ADAPTER_BUDGET = 1_000_000


def make_tasks(args):
    directory = os.path.join(args.out, "tasks")
    os.makedirs(directory, exist_ok=True)
    for part in ("validation", "test"):
        with open(os.path.join(directory, f"{part}.jsonl"), "w", encoding="utf-8") as f:
            for e in RECIPES[args.recipe].held_out(part, HELD_OUT, args.seed):
                f.write(json.dumps({"task": e.task, "prompt": e.prompt, "answer": e.answer}) + "\n")


def make_tokenizer(args):
    if args.tokenizer_from:
        Tokenizer.load(args.tokenizer_from).save(args.out)
        return
    recipe = RECIPES[args.recipe]
    Tokenizer(train_merges(recipe.tokenizer_texts(args.seed), recipe.merges)).save(args.out)


def train(args):
    tokenizer = Tokenizer.load(args.out)
    checkpoint = os.path.join(args.out, "checkpoint.pt")
    recipe = RECIPES[args.recipe]
    budget = args.tokens or recipe.budget
    if os.path.exists(checkpoint) and not args.restart:
        trainer = Trainer.resume(checkpoint, tokenizer, args.bf16)
        if args.extend:
            trainer.budget = budget
        if (trainer.recipe, trainer.budget, trainer.seed) != (recipe, budget, args.seed):
            raise ValueError(
                f"{checkpoint} belongs to --recipe {trainer.recipe.name} --tokens "
                f"{trainer.budget} --seed {trainer.seed}; give these to go on with it, --extend "
                "to go on with another number of tokens, or --restart to begin again")
    else:
        log = os.path.join(args.out, "log.jsonl")
        if os.path.exists(log):
            os.remove(log)
        trainer = Trainer(recipe.config, tokenizer, budget, args.seed, args.bf16, args.recipe)
        if args.start:
            trainer.start_from(llada_weights(args.start, recipe.config))
    if not run(trainer, args.out, args.minutes, args.log_every):
        print(f"stopped at {trainer.tokens} of {trainer.budget} tokens; the same command goes on",
              file=sys.stderr)


def write_prompts(args):
    os.makedirs(args.out, exist_ok=True)
    compress_prompts.write(os.path.join(args.out, "prompts.jsonl"), args.recipe, args.count, args.seed)


def compress(args):
    tokenizer = tokenizer_of(args.start)
    tokenizer.save(args.out)
    checkpoint = os.path.join(args.out, "checkpoint.pt")
    recorded = trajectories.read(*(os.path.join(args.out, name) for name in ("recording.json", "results.jsonl")), tokenizer)
    if not recorded:
        raise ValueError(f"no answer of {args.out}/results.jsonl is right, not even its first block")
    budget = args.tokens or compress_schedule.BUDGET
    if os.path.exists(checkpoint) and not args.restart:
        trainer = Trainer.resume(checkpoint, tokenizer, args.bf16)
        if (trainer.recipe.name, trainer.budget, trainer.seed) != (args.recipe, budget, args.seed):
            raise ValueError(f"{checkpoint} belongs to --recipe {trainer.recipe.name} --tokens {trainer.budget} --seed "
                             f"{trainer.seed}; give these to go on with it, or --restart to begin again")
    else:
        trainer = Trainer(RECIPES[args.recipe].config, tokenizer, budget, args.seed, args.bf16, args.recipe)
        trainer.start_from(llada_weights(args.start, trainer.config))
    trainer.recipe = compress_rows.compressed(trainer.recipe, recorded, compress_schedule)
    if not run(trainer, args.out, args.minutes, args.log_every):
        print(f"stopped at {trainer.tokens} of {trainer.budget} tokens; the same command goes on", file=sys.stderr)


def trained(args):
    """(checkpoint, its recipe, its model)"""
    state = load_checkpoint(os.path.join(args.out, "checkpoint.pt"))
    model = Llada(ModelConfig(**state["config"]))
    model.load_state_dict(state["model" if args.raw else "average"])
    return state, RECIPES[state.get("recipe", "tiny")], model.eval()


def export(args):
    _, recipe, model = trained(args)
    if recipe.modes:
        tri_export.export_model(model, args.out, recipe.gen_length)
    else:
        export_model(model, args.out, recipe.gen_length, block_length=32)


def train_adapter(args):
    _, recipe, model = trained(args)
    if not recipe.modes:
        raise ValueError(f"a model of --recipe {recipe.name} makes no drafts; train one with --recipe tri")
    trainer = AdapterTrainer(model, Tokenizer.load(args.out), args.tokens or ADAPTER_BUDGET, args.seed, args.bf16)
    trainer.run(args.minutes)
    write_adapter(trainer.adapted, args.out)
    tri_export.write_adapter_gguf(trainer.adapted, os.path.join(args.out, f"{FOLDER}.gguf"))


def golden(args):
    items = read_items(os.path.join(args.out, "tasks", "validation.jsonl"))
    directory = os.path.join(args.out, "golden")
    recipe = RECIPES[args.recipe]
    if recipe.modes:
        if args.accuracy_items or args.methods:
            raise ValueError(f"--recipe {recipe.name} has its modes only: leave --methods and --accuracy-items out")
        tri_golden.write_golden(args.out, items[:recipe.golden_runs], directory, recipe.gen_length)
    elif recipe.golden_runs:
        if args.accuracy_items:
            raise ValueError(f"--recipe {recipe.name} has no accuracy table: leave --accuracy-items out, or see evaluate")
        write_half_decodes(args.out, items[:recipe.golden_runs], directory, args.methods or recipe.golden_methods,
                           recipe.gen_length)
    else:
        write_golden(args.out, items, directory, args.methods or recipe.golden_methods, args.accuracy_items)


def evaluation(args):
    state, recipe, model = trained(args)
    items = read_items(os.path.join(args.out, "tasks", "validation.jsonl"))[:args.items]
    print(f"after {state['tokens']} tokens, {state['step']} steps, {state['seconds']:.0f} s")
    tokenizer = Tokenizer.load(args.out)
    if recipe.modes:
        if args.lines or args.show or args.threshold:
            raise ValueError(f"--recipe {recipe.name}: leave --lines, --threshold and --show out")
        print("\n".join(tri_evaluate.table(tri_evaluate.evaluate(model, items, tokenizer))))
        return
    if args.lines:
        if args.show or args.threshold:
            raise ValueError("--lines decodes nothing: leave --threshold and --show out")
        print("\n".join(lines.table(lines.evaluate_lines(model, items, tokenizer))))
        return
    outcomes = evaluate(model, items, tokenizer, recipe.gen_length, threshold=args.threshold or 0.9)
    print("\n".join(table(outcomes)))
    if args.show:
        for item, outcome in zip(items, outcomes):
            if not outcome.correct:
                print(f"\n{item['prompt']}\nwanted:\n{item['answer']}\ngot:\n{outcome.text}")


def everything(args):
    for command in (make_tasks, make_tokenizer, train, export, golden):
        command(args)


def check(args):
    if not verify(args.reference, args.methods or list(METHODS)):
        raise ValueError("the reference is not reproduced")


def positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return value
    parse.__name__ = kind.__name__
    return parse


def tokens(text):
    return round(positive(float)(text))


def method_list(text):
    names = text.split(",")
    for name in names:
        if name not in METHODS:
            raise argparse.ArgumentTypeError(f"no method {name}; there are {', '.join(METHODS)}")
    return names


def parser():
    p = argparse.ArgumentParser(prog="train_tiny", description=__doc__)
    commands = p.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--threads", type=positive(int), help="PyTorch's (default: its choice)")
    out = argparse.ArgumentParser(add_help=False)
    out.add_argument("--out", required=True, metavar="DIR", help="the model's directory")
    seed = argparse.ArgumentParser(add_help=False)
    seed.add_argument("--seed", type=int, default=0)
    recipe = argparse.ArgumentParser(add_help=False)
    recipe.add_argument("--recipe", choices=list(RECIPES), default="tiny")
    tokenizer = argparse.ArgumentParser(add_help=False)
    tokenizer.add_argument("--tokenizer-from", metavar="DIR",
                           help="take this directory's tokenizer instead of training one")
    start_help = "a GGUF file of the architecture llada whose weights a new run begins with"
    running = argparse.ArgumentParser(add_help=False)
    running.add_argument("--minutes", type=positive(float),
                         help="stop after so long; the same command continues from there")
    running.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    running.add_argument("--restart", action="store_true", help="ignore an existing checkpoint")
    running.add_argument("--log-every", type=positive(int), default=50, metavar="STEPS")
    training = argparse.ArgumentParser(add_help=False, parents=[running])
    training.add_argument("--tokens", type=tokens, help="budget (default: the recipe's)")
    training.add_argument("--extend", action="store_true",
                          help="go on from a checkpoint with another budget")
    training.add_argument("--from", dest="start", metavar="FILE", help=start_help)
    compressing = argparse.ArgumentParser(add_help=False, parents=[running])
    compressing.add_argument("--tokens", type=tokens, help=f"budget (default {compress_schedule.BUDGET})")
    compressing.add_argument("--from", dest="start", metavar="FILE", required=True, help=start_help)
    counting = argparse.ArgumentParser(add_help=False)
    counting.add_argument("--count", type=positive(int), default=2000, metavar="N",
                          help="number of prompts (default %(default)s)")
    exporting = argparse.ArgumentParser(add_help=False)
    exporting.add_argument("--raw", action="store_true",
                           help="the last weights instead of their moving average")
    adapting = argparse.ArgumentParser(add_help=False)
    adapting.add_argument("--tokens", type=tokens, help=f"budget (default {ADAPTER_BUDGET})")
    adapting.add_argument("--minutes", type=positive(float), help="stop after so long")
    adapting.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    methods = argparse.ArgumentParser(add_help=False)
    methods.add_argument("--methods", type=method_list, metavar="A,B",
                         help=f"of {', '.join(METHODS)} (default: all; recipe harder: those with 0.9)")
    accuracy = argparse.ArgumentParser(add_help=False)
    accuracy.add_argument("--accuracy-items", type=int, metavar="N",
                          help="items of the accuracy table; 0: no table (default: all; recipe harder has none)")
    looking = argparse.ArgumentParser(add_help=False)
    looking.add_argument("--items", type=positive(int), default=HELD_OUT, metavar="N",
                         help="the first N validation items (default %(default)s)")
    looking.add_argument("--threshold", type=positive(float), help="confidence that commits (default 0.9)")
    looking.add_argument("--lines", action="store_true",
                         help="the share of correct lines after correct previous lines, instead of whole answers")
    looking.add_argument("--show", action="store_true", help="print what is wrong in full")
    reference = argparse.ArgumentParser(add_help=False)
    reference.add_argument("--reference", required=True, metavar="DIR",
                           help="a checkpoint with tasks/ and golden/ made elsewhere")

    def add(name, function, text, *parents):
        command = commands.add_parser(name, help=text, parents=[shared, *parents])
        command.set_defaults(function=function)

    add("tasks", make_tasks, "write the held-out items", out, seed, recipe)
    add("tokenizer", make_tokenizer, "train the tokenizer", out, seed, recipe, tokenizer)
    add("train", train, "train, or go on training", out, seed, recipe, training)
    add("prompts", write_prompts, "write prompts of training whose decoding dllm eval --record records", out, seed,
        recipe, counting)
    add("compress", compress, "fine-tune on recorded decodes, to take fewer passes", out, seed, recipe, compressing)
    add("export", export, "write the Hugging Face files", out, exporting)
    add("adapter", train_adapter, "train the adapter of a model's drafts, and write it", out, seed, exporting, adapting)
    add("evaluate", evaluation, "accuracy and passes of the checkpoint", out, exporting, looking)
    add("golden", golden, "write golden outputs and the accuracy table", out, recipe, methods, accuracy)
    add("all", everything, "all of these, one after another", out, seed, recipe, tokenizer, training,
        exporting, methods, accuracy)
    add("verify", check, "reproduce the golden outputs of a reference", reference, methods)
    return p


def main(argv=None):
    args = parser().parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        args.function(args)
    except (ValueError, OSError) as e:
        print(f"train_tiny: {e}", file=sys.stderr)
        return 1
    return 0
